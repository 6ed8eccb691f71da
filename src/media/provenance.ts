import { fstatSync, readSync } from 'node:fs';
import type { Provenance } from '../job.ts';
import { BoxWalk, type Content } from './box-walk.ts';
import { HeaderReader, startsMp4 } from './mp4.ts';

const c2paId = 'd8fec3d61b0e483c92975828877ec481';
/** The user type of a box with XMP. */
export const xmpId = Buffer.from('be7acfcb97a942e89c71999491e3afac', 'hex');
/** The maximum length of XMP that is read, bytes. */
export const maxXmpBytes = 1024 * 1024;
// This many bytes of a text or frame identify it. BoxWalk reads no more at a time.
const headBytes = 4096;
// A video has one or two packets, in boxes of at most `moov/udta/meta`.
const [maxPackets, maxDepth] = [8, 4];

/** Statements in a file about its origin. */
export interface Origins {
  /** Without repetition. */
  kinds: Provenance[];
  /** The first XMP packets of an MP4, at most 8: the box, and the text in it. */
  packets: { box: Content; content: Content }[];
}

/**
 * Detects statements about the origin of a file (design 19): a C2PA manifest, XMP and the `AIGC` label, in the boxes of
 * an MP4 or the ID3v2 frames of an MP3. Signatures are not verified. Reads headers, and at most 1 MiB of XMP.
 * @param file its descriptor, open for reading
 * @throws the errors of the file system
 */
export function originsIn(file: number): Origins {
  const kinds = new Set<Provenance>();
  const packets: Origins['packets'] = [];
  const head = Buffer.from(new HeaderReader(file).at(0));
  if (startsMp4(head)) readMovie(file, kinds, packets);
  else if (head.toString('latin1', 0, 3) === 'ID3') readTag(file, head, kinds);
  return { kinds: [...kinds].sort(), packets };
}

function readMovie(file: number, kinds: Set<Provenance>, packets: Origins['packets']): void {
  const walk = new BoxWalk(file);
  const addPacket = (box: Content, content: Content): void => {
    kinds.add('xmp');
    if (packets.push({ box, content }) >= maxPackets) walk.exhaust();
    if (textIn(file, content).includes('AIGC')) kinds.add('aigc');
  };
  const visit = (box: Content, depth = 1): void => {
    const { type, start } = box;
    if (type === 'uuid') {
      const id = walk.bytes(box, 16);
      if (id?.toString('hex') === c2paId) kinds.add('c2pa');
      else if (id?.equals(xmpId)) addPacket(box, { ...box, start: start + 16 });
    } else if (type === 'XMP_') {
      addPacket(box, box);
    } else if (type === 'moov' || type === 'udta') {
      if (depth < maxDepth) walk.each(box, (each) => visit(each, depth + 1));
    } else if (type === 'meta') {
      // QuickTime's has no version.
      const isPlain = walk.bytes(box, 8)?.toString('latin1', 4) === 'hdlr';
      walk.each({ start: isPlain ? start : start + 4, end: box.end }, (each) => {
        const hasLabel = (item: Content): boolean =>
          walk.bytes(item, Math.min(headBytes, item.end - item.start))?.includes('AIGC') === true;
        if (each.type === 'keys' && hasLabel(each)) kinds.add('aigc');
        if (each.type !== 'ilst') return;
        walk.each(each, (item) => {
          if (hasLabel(item)) kinds.add('aigc');
        });
      });
    }
  };
  walk.each({ start: 0, end: fstatSync(file).size }, (box) => visit(box));
}

/** Returns the text of an XMP packet, cut at 1 MiB. */
export function textIn(file: number, { start, end }: Pick<Content, 'start' | 'end'>): string {
  const bytes = Buffer.alloc(Math.min(end - start, maxXmpBytes));
  return bytes.toString('utf8', 0, readSync(file, bytes, 0, bytes.length, start));
}

const maxFrames = 1000;

function readTag(file: number, head: Buffer, kinds: Set<Provenance>): void {
  const [version = 0, flags = 0] = [head[3], head[5]];
  const end = 10 + syncsafe(head, 6);
  // Version 2 has no frame that is looked for here; its names are shorter.
  let at = version < 3 ? end : 10;
  if (flags & 0x40) {
    const extended = Buffer.alloc(4);
    readSync(file, extended, 0, 4, at);
    at += version === 4 ? syncsafe(extended, 0) : extended.readUInt32BE(0) + 4;
  }
  const bytes = Buffer.alloc(10 + headBytes);
  for (let frames = 0; at + 10 < end && frames < maxFrames; frames += 1) {
    const read = readSync(file, bytes, 0, bytes.length, at);
    const id = bytes.toString('latin1', 0, 4);
    if (read < 10 || !/^[A-Z0-9]{4}$/.test(id)) return;
    const size = version === 4 ? syncsafe(bytes, 4) : bytes.readUInt32BE(4);
    // Without the zeros of UTF-16.
    const text = bytes.toString('latin1', 10, Math.min(read, 10 + size)).replaceAll('\0', '');
    if (id === 'GEOB' && text.slice(0, 200).includes('c2pa')) kinds.add('c2pa');
    if (id === 'PRIV' && text.startsWith('XMP')) kinds.add('xmp');
    if (['TXXX', 'COMM', 'PRIV'].includes(id) && text.includes('AIGC')) kinds.add('aigc');
    at += 10 + size;
  }
}

// Seven bits of each of four bytes.
function syncsafe(bytes: Buffer, at: number): number {
  return bytes.subarray(at, at + 4).reduce((sum, byte) => sum * 128 + (byte & 0x7f), 0);
}
