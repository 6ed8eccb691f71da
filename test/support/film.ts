import { randomBytes } from 'node:crypto';

/** Returns an MP4 box with its header. `content` is its bytes, or the number of random bytes. */
export function box(type: string, content: Buffer | number = 0): Buffer {
  const body = typeof content === 'number' ? randomBytes(content) : content;
  const header = Buffer.alloc(8);
  header.writeUInt32BE(8 + body.length, 0);
  header.write(type, 4, 'latin1');
  return Buffer.concat([header, body]);
}

/** The end offsets of the boxes in a {@link film}. */
export const boxEnds = [24, 332];

/** Returns an MP4 file of `size` bytes: valid boxes that contain noise. */
export function film(size: number): Buffer {
  const start = Buffer.concat([box('ftyp', Buffer.from('isom\x00\x00\x02\x00isommp41')), box('moov', 300)]);
  return Buffer.concat([start, box('mdat', size - start.length - 8)]);
}

/** Returns a small MP4 file that consists of text, so printing does not change it. */
export function fakeMp4(size = 4096): Buffer {
  return Buffer.concat([
    box('ftyp', Buffer.from('mp42\0\0\0\0mp42isom')),
    box('moov'),
    box('mdat', Buffer.alloc(size - 8, 'x')),
  ]);
}
