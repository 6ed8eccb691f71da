import { describe, expect, test } from 'vitest';
import { contentFault, expectedType, imageFromFile } from '../../../src/protocols/a/flags.ts';
import { imageType } from '../../../src/protocols/flag.ts';
import { images } from './support.ts';

describe('an image file', () => {
  test.each(Object.entries(images))('is recognized as %s by its bytes', (mimeType, bytes) => {
    expect(imageFromFile(bytes)).toEqual({ bytesBase64Encoded: bytes.toString('base64'), mimeType });
  });

  test('is sent completely, even if it is part of a larger buffer', () => {
    const bytes = Buffer.concat([images['image/png'] ?? Buffer.alloc(0), Buffer.from('rest')]);
    const part = new Uint8Array(Buffer.concat([Buffer.from('xx'), bytes])).subarray(2);
    expect(imageFromFile(part)).toMatchObject({ bytesBase64Encoded: bytes.toString('base64') });
  });

  test.each([
    ['empty', Buffer.alloc(0)],
    ['plain text', Buffer.from('not an image, whatever its name says')],
    ['only half a signature', Buffer.from('\x89PN', 'latin1')],
    ['an MP4', Buffer.from('\0\0\0\x18ftypisom', 'latin1')],
    ['text that begins like a bitmap', Buffer.from('BMW makes cars and motorcycles in Munich')],
    ['over 20 MiB', Buffer.concat([images['image/png'] ?? Buffer.alloc(0), Buffer.alloc(20 * 1024 * 1024)])],
  ])('is refused if it is %s', (_, bytes) => {
    expect(() => imageFromFile(bytes)).toThrow(
      'an image (png, jpeg, webp, gif, bmp, heic, heif, avif) of at most 20 MiB',
    );
  });
});

test.each([
  ['data:image/png;base64,QUJD', 'Base64 with no Data URL prefix'],
  ['QUJ', /strict Base64/],
  ['QUJD\n', /strict Base64/],
  ['QUJ_', /strict Base64/],
  ['Q===', /strict Base64/],
  ['ŁUJD', /strict Base64/],
  ['QUJD', undefined],
  ['QQ==', undefined],
])('the check of image content accepts %j only if it is strict Base64', (content, fault) => {
  if (fault === undefined) expect(contentFault(content)).toBeUndefined();
  else expect(contentFault(content)).toMatch(fault);
});

test("an image type that contradicts the image's bytes is reported with the correct type", () => {
  const png = images['image/png']?.toString('base64') ?? '';
  expect(expectedType('image/jpeg', png)).toBe('image/png');
  expect(expectedType('image/png', png)).toBeUndefined();
  expect(expectedType('IMAGE/PNG', png)).toBeUndefined();
  expect(expectedType('image/png', 'QUJD')).toMatch(/the type that matches the bytes/);
  expect(expectedType('image/x-of-tomorrow', 'QUJD')).toBeUndefined();
});

test('an empty buffer has no image type', () => {
  expect(imageType(new Uint8Array())).toBeUndefined();
});
