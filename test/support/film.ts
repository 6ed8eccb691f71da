import { randomBytes } from 'node:crypto';

/** A box of an MP4 file with its header. */
export function box(type: string, content: Buffer | number = 0): Buffer {
  const body = typeof content === 'number' ? randomBytes(content) : content;
  const header = Buffer.alloc(8);
  header.writeUInt32BE(8 + body.length, 0);
  header.write(type, 4, 'latin1');
  return Buffer.concat([header, body]);
}

/** The end offsets of a {@link film}'s boxes. */
export const boxEnds = [24, 332];

/** The bytes of an MP4 file of the given size: valid boxes with noise inside. */
export function film(size: number): Buffer {
  const start = Buffer.concat([box('ftyp', Buffer.from('isom\x00\x00\x02\x00isommp41')), box('moov', 300)]);
  return Buffer.concat([start, box('mdat', size - start.length - 8)]);
}

/** A small MP4 file whose bytes are text, so that printing does not change them. */
export function fakeMp4(size = 4096): Buffer {
  return Buffer.concat([
    box('ftyp', Buffer.from('mp42\0\0\0\0mp42isom')),
    box('moov'),
    box('mdat', Buffer.alloc(size - 8, 'x')),
  ]);
}
