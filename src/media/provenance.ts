import { fstatSync, readSync } from 'node:fs';
import type { Provenance } from '../job.ts';
import { BoxWalk, type Content, HeaderReader, startsMp4 } from './mp4.ts';
import { type Id3Tag, id3Tags } from './id3.ts';

const c2paId = 'd8fec3d61b0e483c92975828877ec481';
/** The user type of a box that contains XMP. */
export const xmpId = Buffer.from('be7acfcb97a942e89c71999491e3afac', 'hex');
/** The maximum XMP length to read, in bytes. */
export const maxXmpBytes = 1024 * 1024;
// The number of bytes that suffice to identify a packet or frame, and the maximum that BoxWalk reads at a time.
const headBytes = 4096;
// A video has one or two XMP packets, nested no deeper than `moov/udta/meta`.
const [maxPackets, maxDepth] = [8, 4];

/** A file's statements about its own origin. */
export interface Origins {
  /** The kinds of statements, without duplicates. */
  kinds: Provenance[];
  /** The first XMP packets of an MP4, at most 8: each packet's box, and the text in it. */
  packets: { box: Content; content: Content }[];
}

/**
 * Detects a file's statements about its origin (design 19): a C2PA manifest, XMP and the `AIGC` label, in the boxes of
 * an MP4 or the ID3v2 frames of an MP3. Signatures are not verified. Reads headers, and at most 1 MiB of XMP.
 * @param file the file's descriptor, open for reading
 * @throws file system errors
 */
export function originsIn(file: number): Origins {
  const kinds = new Set<Provenance>();
  const packets: Origins['packets'] = [];
  if (!startsMp4(new HeaderReader(file).at(0))) return { kinds: kindsIn(id3Tags(file)), packets };
  readMovie(file, kinds, packets);
  return { kinds: [...kinds].sort(), packets };
}

/** Returns the kinds of statements in an MP3's tags, without duplicates. */
export function kindsIn(tags: readonly Id3Tag[]): Provenance[] {
  const kinds = new Set<Provenance>();
  for (const { id, text } of tags.flatMap(({ frames }) => frames)) {
    if (id === 'GEOB' && text.slice(0, 200).includes('c2pa')) kinds.add('c2pa');
    if (id === 'PRIV' && text.startsWith('XMP')) kinds.add('xmp');
    if (['TXXX', 'COMM', 'PRIV'].includes(id) && text.includes('AIGC')) kinds.add('aigc');
  }
  return [...kinds].sort();
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
      // In QuickTime, this box has no version field.
      const isQuickTime = walk.bytes(box, 8)?.toString('latin1', 4) === 'hdlr';
      walk.each({ start: isQuickTime ? start : start + 4, end: box.end }, (each) => {
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

/** Returns an XMP packet's text, truncated to 1 MiB. */
export function textIn(file: number, { start, end }: Pick<Content, 'start' | 'end'>): string {
  const bytes = Buffer.alloc(Math.min(end - start, maxXmpBytes));
  return bytes.toString('utf8', 0, readSync(file, bytes, 0, bytes.length, start));
}
