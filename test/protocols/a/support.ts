import type { Reply, SpooledMedia } from '../../../src/exchange.ts';
import type { JsonObject } from '../../../src/json.ts';

/** The operation name used in these tests. */
export const name = 'models/video-a/operations/op-1';

/** Returns a response with the given body: text unchanged, other values as JSON. */
export function reply(body: unknown, status = 200, rest: Partial<Reply> = {}): Reply {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { status, headers: {}, text, complete: true, ...rest };
}

/** A body that passes every check and causes no advice. */
export const goodBody = {
  model: 'video-a',
  instances: [{ prompt: 'a cat' }],
  parameters: { durationSeconds: 8, resolution: '720p', generateAudio: false },
} satisfies JsonObject;

/** Returns a finished operation with the given samples. `response` adds members to the operation's response. */
export function finished(samples: unknown, response: object = {}): JsonObject {
  const generateVideoResponse = { generatedSamples: samples, ...response };
  return { name, done: true, response: { generateVideoResponse } } as JsonObject;
}

/** Returns the media that a spool reports after diverting `count` strings. */
export function spooled(count: number): SpooledMedia[] {
  return Array.from({ length: count }, (_, index) => ({ path: `/spool/${index}`, bytes: 10 }));
}

const bytesOf = (text: string): Buffer => Buffer.concat([Buffer.from(text, 'latin1'), Buffer.alloc(40)]);

/** The first bytes of an image of each type, by MIME type. */
export const images: Record<string, Buffer> = {
  'image/png': bytesOf('\x89PNG\r\n\x1a\n'),
  'image/jpeg': bytesOf('\xff\xd8\xff\xe0'),
  'image/webp': bytesOf('RIFF\x10\0\0\0WEBPVP8 '),
  'image/gif': bytesOf('GIF89a'),
  'image/bmp': bytesOf('BM\x46\0\0\0\0\0\0\0'),
  'image/heic': bytesOf('\0\0\0\x18ftypheic'),
  'image/heif': bytesOf('\0\0\0\x18ftypmif1'),
  'image/avif': bytesOf('\0\0\0\x18ftypavif'),
};
