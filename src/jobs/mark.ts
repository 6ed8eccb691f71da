import { closeSync, createReadStream, fstatSync, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';
import { HashedFile } from '../files/hashed-file.ts';
import { localError } from '../errors.ts';
import type { OutputLock } from '../files/output-lock.ts';
import type { SealedFile } from '../files/whole-file.ts';
import { BoxWalk, type Content, HeaderReader, startsMp4 } from '../media/mp4.ts';
import { id3Tags, textFrameEdits } from '../media/id3.ts';
import { kindsIn, maxXmpBytes, originsIn, textIn, xmpId } from '../media/provenance.ts';

const term = 'http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia';

/** The note for `--mark` with a file that was saved earlier. */
export const savedText =
  '--mark does not change a file that is already saved: save it again under another name to mark it.';
/** The note for `--mark` with standard output. */
export const stdoutText = '--mark does not apply to standard output: save a file with -o FILE to mark it.';

/** A change that adds the mark to a file: at the offset `at`, `bytes` replace the next `replaced` bytes. */
interface Edit {
  at: number;
  replaced: number;
  bytes: Buffer;
}

/**
 * Makes a marked copy of a complete file next to the output (design 19). The mark is the IPTC term for media made by a
 * trained algorithm. In an MP4, it is XMP at the end of the file, so no offsets change. In an MP3, it is a TXXX frame
 * of the ID3v2 tag. An existing XMP packet or tag is extended. The same file always produces the same copy. If the
 * process dies, the copy is removed with the lock.
 * @param note called with the reason if the file remains unchanged
 * @returns undefined if the file remains unchanged
 * @throws MgwError('local_io'), exit 10; the file is paid for.
 */
export async function markedCopy(
  part: Pick<SealedFile, 'path'>,
  output: OutputLock,
  note: (text: string) => void,
): Promise<SealedFile | undefined> {
  try {
    const edits = editsOf(part.path);
    if (edits === 'marked') return undefined;
    if (typeof edits === 'string') {
      note(`${basename(output.target)} is not marked: ${edits}.`);
      return undefined;
    }
    const { path, file } = await output.createScratch();
    const copy = new HashedFile(path, file);
    try {
      await copyEdited(part.path, edits, copy);
      return await copy.seal();
    } finally {
      await copy.close();
    }
  } catch (error) {
    throw localError(error, output.target, 'yes');
  }
}

async function copyEdited(from: string, edits: readonly Edit[], to: HashedFile): Promise<void> {
  const write = async (start: number, end: number): Promise<void> => {
    if (start >= end) return;
    for await (const chunk of createReadStream(from, { start, end: end - 1 }))
      await to.write([chunk as Uint8Array]);
  };
  let copiedBytes = 0;
  for (const { at, replaced, bytes } of edits) {
    await write(copiedBytes, at);
    await to.write([bytes]);
    copiedBytes = at + replaced;
  }
  await write(copiedBytes, Infinity);
}

/** Returns the edits that mark a file, `marked` if the file already contains the term, or why it cannot be marked. */
function editsOf(path: string): Edit[] | string {
  const file = openSync(path, 'r');
  try {
    const head = Buffer.from(new HeaderReader(file).at(0));
    if (startsMp4(head)) return movieEdits(file);
    // An MP3 begins with an ID3v2 tag or an MPEG audio layer III frame.
    const isMp3 =
      head.toString('latin1', 0, 3) === 'ID3' ||
      (head.length > 1 && (head.readUInt16BE(0) & 0xffe6) === 0xffe2);
    return isMp3 ? tagEdits(file) : 'it is neither an MP4 nor an MP3';
  } finally {
    closeSync(file);
  }
}

const manifestProblem = 'it has a C2PA manifest, which a change would break';

function movieEdits(file: number): Edit[] | string {
  const { kinds, packets } = originsIn(file);
  if (kinds.includes('c2pa')) return manifestProblem;
  const last = lastBox(file);
  if (last === undefined || isUnsized(file, last)) return 'its last box has no size';
  const [packet, ...others] = packets;
  if (packet === undefined) return [{ at: last.end, replaced: 0, bytes: xmpBox(xmp()) }];
  const text = textIn(file, packet.content);
  if (text.includes(term)) return 'marked';
  const mergedPacket =
    packet.content.end - packet.content.start > maxXmpBytes || others.length > 0
      ? undefined
      : mergedXmp(text);
  if (mergedPacket === undefined || typeBefore(file, packet.box) !== packet.box.type)
    return 'its XMP cannot be merged with the mark';
  // Turn the old packet into a box of type `free`, which readers skip.
  return [
    { at: packet.box.start - 4, replaced: 4, bytes: Buffer.from('free') },
    { at: last.end, replaced: 0, bytes: xmpBox(mergedPacket) },
  ];
}

const property = 'DigitalSourceType';

function tagEdits(file: number): Edit[] | string {
  const tags = id3Tags(file);
  if (kindsIn(tags).includes('c2pa')) return manifestProblem;
  const sources = tags.flatMap(({ frames }) => frames).filter(({ text }) => text.includes(property));
  if (sources.some(({ text }) => text.includes(term))) return 'marked';
  const isReadable = sources.length === 0 && tags.every(({ canGrow }) => canGrow);
  const edits = isReadable ? textFrameEdits(tags[0], property, term) : undefined;
  return edits ?? 'its ID3 tag cannot be merged with the mark';
}

function lastBox(file: number): Content | undefined {
  let last: Content | undefined;
  const { size } = fstatSync(file);
  new BoxWalk(file).each({ start: 0, end: size }, (box) => (last = box));
  return last?.end === size ? last : undefined;
}

// Whether a box's size is 0, meaning "to the end of the file". Such a box would include an appended box.
function isUnsized(file: number, box: Content): boolean {
  const header = Buffer.alloc(4);
  readSync(file, header, 0, 4, box.start - 8);
  return header.readUInt32BE(0) === 0 && typeBefore(file, box) === box.type;
}

function typeBefore(file: number, { start }: Content): string {
  const type = Buffer.alloc(4);
  readSync(file, type, 0, 4, start - 4);
  return type.toString('latin1');
}

function xmpBox(text: string): Buffer {
  const content = Buffer.concat([xmpId, Buffer.from(text)]);
  const header = Buffer.alloc(8);
  header.writeUInt32BE(8 + content.length);
  header.write('uuid', 4);
  return Buffer.concat([header, content]);
}

function description(about: string): string {
  const names = [
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"',
    'xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/"',
  ];
  return `<rdf:Description ${names.join(' ')} rdf:about="${about}" Iptc4xmpExt:DigitalSourceType="${term}"/>`;
}

function xmp(): string {
  return [
    '<?xpacket begin="\u{feff}" id="W5M0MpCehiHzreSzNTczkc9d"?>',
    '<x:xmpmeta xmlns:x="adobe:ns:meta/">',
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">',
    description(''),
    '</rdf:RDF>',
    '</x:xmpmeta>',
    '<?xpacket end="w"?>',
  ].join('\n');
}

// Returns undefined if the packet has no place for the mark or already contains another source: a property must not
// occur twice.
function mergedXmp(text: string): string | undefined {
  const at = [...text.matchAll(/<\/[\w.-]{1,40}:RDF\s{0,40}>/g)].at(-1)?.index ?? -1;
  if (at < 0 || text.includes(property)) return undefined;
  // All descriptions in a packet have the same subject.
  const [, about = ''] = /:about="([^"<>]*)"/.exec(text) ?? [];
  return `${text.slice(0, at)}${description(about)}\n${text.slice(at)}`;
}
