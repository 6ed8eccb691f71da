import { closeSync, createReadStream, fstatSync, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';
import { HashedFile } from '../files/hashed-file.ts';
import { localError } from '../files/local-error.ts';
import type { OutputLock } from '../files/output-lock.ts';
import type { SealedFile } from '../files/whole-file.ts';
import { BoxWalk, type Content } from '../media/box-walk.ts';
import { HeaderReader, startsMp4 } from '../media/mp4.ts';
import { maxXmpBytes, originsIn, textIn, xmpId } from '../media/provenance.ts';

const term = 'http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia';

/** The changes that mark a file. */
interface Change {
  /** The offset of a box type that becomes `free`, which readers skip. */
  freed: number | undefined;
  added: Buffer;
}

/**
 * Makes a marked copy of a complete MP4 next to the output (design 19): XMP with the IPTC term for media of a trained
 * algorithm, at the end, so that nothing moves. XMP that is there is merged into it. The same file always gives the
 * same copy. The lock removes the copy if the process dies.
 * @param note called with the reason if the file stays as it is
 * @returns undefined if the file stays as it is
 * @throws MgwError('local_io'), exit 10; the video is paid for.
 */
export async function markedCopy(
  part: SealedFile,
  output: OutputLock,
  note: (text: string) => void,
): Promise<SealedFile | undefined> {
  try {
    const change = changeOf(part.path);
    if (change === 'marked') return undefined;
    if (typeof change === 'string') {
      note(`${basename(output.target)} is not marked: ${change}.`);
      return undefined;
    }
    const { path, file } = await output.createScratch();
    const copy = new HashedFile(path, file);
    try {
      await copyChanged(part.path, change, copy);
      return await copy.seal();
    } finally {
      await copy.close();
    }
  } catch (error) {
    throw localError(error, output.target, 'yes');
  }
}

async function copyChanged(from: string, { freed, added }: Change, to: HashedFile): Promise<void> {
  const write = async (start: number, end: number): Promise<void> => {
    if (start > end) return;
    for await (const chunk of createReadStream(from, { start, end })) await to.write([chunk as Uint8Array]);
  };
  if (freed === undefined) {
    await write(0, Infinity);
  } else {
    await write(0, freed - 1);
    await to.write([Buffer.from('free')]);
    await write(freed + 4, Infinity);
  }
  await to.write([added]);
}

/** Returns what marks a file, `marked` if it names the term, or why it cannot be marked. */
function changeOf(path: string): Change | string {
  const file = openSync(path, 'r');
  try {
    if (!startsMp4(new HeaderReader(file).at(0))) return 'it is no MP4';
    const { kinds, packets } = originsIn(file);
    if (kinds.includes('c2pa')) return 'it has a C2PA manifest, which a change would break';
    const last = lastBox(file);
    if (last === undefined || isOpen(file, last)) return 'its last box has no size';
    const [packet, ...others] = packets;
    if (packet === undefined) return { freed: undefined, added: xmpBox(xmp()) };
    const text = textIn(file, packet.content);
    if (text.includes(term)) return 'marked';
    const merged =
      packet.content.end - packet.content.start > maxXmpBytes || others.length > 0
        ? undefined
        : mergedXmp(text);
    if (merged === undefined || typeBefore(file, packet.box) !== packet.box.type)
      return 'its XMP cannot be merged with the mark';
    return { freed: packet.box.start - 4, added: xmpBox(merged) };
  } finally {
    closeSync(file);
  }
}

function lastBox(file: number): Content | undefined {
  let last: Content | undefined;
  const { size } = fstatSync(file);
  new BoxWalk(file).each({ start: 0, end: size }, (box) => (last = box));
  return last?.end === size ? last : undefined;
}

// A size of 0 means "to the end of the file", which would then include an appended box.
function isOpen(file: number, box: Content): boolean {
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

// Undefined if there is no place for the mark, or the packet names another source: a property must not occur twice.
function mergedXmp(text: string): string | undefined {
  const at = [...text.matchAll(/<\/[\w.-]{1,40}:RDF\s{0,40}>/g)].at(-1)?.index ?? -1;
  if (at < 0 || text.includes('DigitalSourceType')) return undefined;
  // All descriptions of a packet have the same subject.
  const [, about = ''] = /:about="([^"<>]*)"/.exec(text) ?? [];
  return `${text.slice(0, at)}${description(about)}\n${text.slice(at)}`;
}
