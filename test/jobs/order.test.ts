import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fingerprintOf, recordedBody } from '../../src/jobs/order.ts';
import type { Json } from '../../src/json.ts';

const print = (body: Json, more: { gateway?: string; protocol?: 'a' | 'b' } = {}): string =>
  fingerprintOf({ protocol: more.protocol ?? 'a', body }, more.gateway ?? 'g');

describe('a fingerprint', () => {
  it("is the same for the same body, regardless of the members' order", () => {
    const members = fc.dictionary(fc.string(), fc.jsonValue());
    fc.assert(
      fc.property(members, (body) => {
        const turned = Object.fromEntries(Object.entries(body).reverse());
        expect(print(turned as Json)).toBe(print(body as Json));
        expect(print(body as Json)).toMatch(/^[0-9a-f]{64}$/);
      }),
    );
  });

  it('treats all loopback names as equal, and ignores the API key', () => {
    const [local, ...others] = ['http://localhost:1/x', 'http://127.0.0.1:1/x/', 'http://[::1]:1/x'];
    for (const gateway of others)
      expect(print({ p: 'a' }, { gateway })).toBe(print({ p: 'a' }, { gateway: local }));
    expect(print({ p: 'a' }, { gateway: 'http://localhost:2/x' })).not.toBe(
      print({ p: 'a' }, { gateway: local }),
    );
  });

  it('differs if the body, the gateway or the protocol differs', () => {
    const all = [
      print({ p: 'a' }),
      print({ p: 'b' }),
      print({ p: ['a'] }),
      print({ p: 'a' }, { gateway: 'h' }),
      print({ p: 'a' }, { protocol: 'b' }),
    ];
    expect(new Set(all).size).toBe(all.length);
  });
});

describe('a fingerprint of the requested body', () => {
  const of = (body: Json, asked?: Json): string =>
    fingerprintOf({ protocol: 'b', body, userBody: asked }, 'g');

  it('ignores additions from a default or the model list', () => {
    const userBody = { ModelName: 'Lite' };
    expect(of({ ...userBody, ModelVersion: '2' }, userBody)).toBe(
      of({ ...userBody, ModelVersion: '1' }, userBody),
    );
    expect(of({ ...userBody, ModelVersion: '1' }, userBody)).toBe(of(userBody));
    expect(of(userBody, { ModelName: 'Other' })).not.toBe(of(userBody));
  });
});

describe('the recorded body', () => {
  const hash = { sha256: expect.stringMatching(/^[0-9a-f]{64}$/) as string };

  it('is the whole body, or the body with each long string replaced by its hash if the body is too large', () => {
    const fits = { prompt: 'x'.repeat(256 * 1024 - 13) };
    expect(recordedBody(fits)).toEqual({ request: fits });
    const [prompt, short] = [`${fits.prompt}é`, 'y'.repeat(16 * 1024)];
    const over = { model: 'm', instances: [{ prompt, short, none: null }], parameters: { sampleCount: 2 } };
    const instance = { prompt: { ...hash, bytes: 256 * 1024 - 11 }, short, none: null };
    expect(recordedBody(over)).toEqual({ request: { ...over, instances: [instance] }, elided: true });
  });

  it('does not contain the API key, and cannot be sent again if the key had to be removed', () => {
    const redact = (text: string): string => text.replaceAll('sk-1', '[redacted]');
    expect(recordedBody({ a: ['say sk-1'], 'sk-1': 1, b: 2 }, redact)).toEqual({
      request: { a: ['say [redacted]'], '[redacted]': 1, b: 2 },
      elided: true,
    });
  });

  it('is a hash if the body is too large even without its long strings', () => {
    const list = Array.from({ length: 20 }, () => 'z'.repeat(16 * 1024));
    expect(recordedBody({ list })).toEqual({ request: { ...hash, bytes: 327_750 }, elided: true });
  });
});
