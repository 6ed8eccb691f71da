import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatDecimal, parseAmount, parseDecimal } from '../../src/decimal.ts';
import {
  costAtMost,
  jobCost,
  parsePrice,
  speechUnits,
  videoUnits,
  type Multipliers,
} from '../../src/budget/prices.ts';
import type { JsonObject } from '../../src/json.ts';
import type { ProtocolName } from '../../src/protocols/registry.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { speechFlags, speechQuantity } from '../../src/speech/flags.ts';

function cost(
  name: ProtocolName,
  text: string,
  body: JsonObject,
  multipliers?: Multipliers,
): string | undefined {
  const protocol = protocols[name];
  const { flags } = protocol;
  const found = costAtMost(parsePrice(text, flags), protocol.quantityOf(body), multipliers);
  return found && formatDecimal(found);
}

const a = (parameters: JsonObject, instances: JsonObject[] = [{ prompt: 'a boat' }]): JsonObject => ({
  model: 'veo',
  instances,
  parameters,
});
const b = (OutputConfig: JsonObject): JsonObject => ({ ModelName: 'Kling', OutputConfig });

describe("a body's maximum cost", () => {
  it('includes the seconds of every video under Protocol A', () => {
    expect(cost('a', 'second=0.12', a({ durationSeconds: 8 }))).toBe('0.96');
    expect(cost('a', 'second=0.12', a({ durationSeconds: 8, sampleCount: 3 }))).toBe('2.88');
    expect(cost('a', 'video=1.5', a({ sampleCount: 4 }, [{}, {}]))).toBe('12');
  });

  it('includes the duration in OutputConfig under Protocol B', () => {
    expect(cost('b', 'second=0.1', b({ Duration: 3 }))).toBe('0.3');
    expect(cost('b', 'video=2 second=0.1', b({ Duration: 3 }))).toBe('2.3');
  });

  it('includes the duration under either name under Protocol C', () => {
    expect(cost('c', 'second=0.1', { model: 'vendor-h3-mini', duration: 7 })).toBe('0.7');
    expect(cost('c', 'second=0.1', { model: 'vendor-h3-mini', seconds: '7' })).toBe('0.7');
  });

  it.each<[string | undefined, JsonObject]>([
    ['1.5', { duration: 5, seconds: '15' }],
    ['1.5', { duration: 15, seconds: 5 }],
    ['1.5', { duration: null, seconds: '15' }],
    ['0.5', { duration: 4.2 }],
    ['0.5', { duration: 5, seconds: null }],
    ['0.5', { duration: 5, seconds: '' }],
    [undefined, { duration: 5, seconds: 'long' }],
    [undefined, { duration: 5, seconds: [15] }],
    [undefined, { duration: null }],
    [undefined, { duration: 0 }],
    [undefined, { seconds: '' }],
  ])('is computed from the longer duration under Protocol C: %s for %j', (max, body) => {
    expect(cost('c', 'second=0.1', { model: 'vendor-h3-mini', ...body })).toBe(max);
  });

  it('is the higher price of two durations under Protocol C', () => {
    const price = 'video=1; duration=5: video=2; duration=15: video=3';
    expect(cost('c', price, { model: 'vendor-h3', duration: 5 })).toBe('2');
    expect(cost('c', price, { model: 'vendor-h3', seconds: '15' })).toBe('3');
    expect(cost('c', price, { model: 'vendor-h3', duration: 5, seconds: 15 })).toBe('3');
  });

  it('is the highest price of any duration under Protocol C if an omitted duration has no default', () => {
    const price = 'video=1; duration=10: video=5';
    expect(cost('c', price, { model: 'vendor-h3-mini' })).toBe('5');
    expect(cost('c', 'second=0.1; duration=10: second=0.7', { model: 'vendor-h3-mini' })).toBe('10.5');
    expect(cost('c', price, { model: 'vendor-h3' })).toBe('1');
  });

  it.each<[string | undefined, JsonObject['sampleCount']]>([
    ['24', '3'],
    ['8', null],
    ...[2.5, '2.5', 0, '', -1, 'many', 1e300, [2], { toString: null }].map(
      (count): [undefined, typeof count] => [undefined, count],
    ),
  ])('is %s under Protocol A for sampleCount %j', (max, sampleCount) => {
    const body = a({ durationSeconds: 8, sampleCount });
    expect(cost('a', 'second=1', body)).toBe(max);
    expect(cost('a', 'video=8', body)).toBe(max);
    expect(cost('a', 'second=0.1 minimum=8', body)).toBe(max);
    expect(cost('a', 'second=1 default_seconds=8', a({ sampleCount }))).toBe(max);
  });

  it('is unknown under Protocol A for two instances with an invalid sampleCount', () => {
    expect(cost('a', 'video=1', a({ sampleCount: 2.5 }, [{}, {}]))).toBeUndefined();
  });

  it("uses the specification's default for an omitted field, or the largest allowed value if there is no default", () => {
    expect(cost('c', 'second=0.1; resolution=2K: second=9', { model: 'vendor-h3' })).toBe('0.5');
    expect(cost('c', 'second=0.1', { model: 'vendor-h3-mini' })).toBe('1.5');
  });

  it('uses the resolution that the gateway produces: 720p for 768P of a self-hosted model', () => {
    const price = 'second=1; resolution=720p: second=2';
    expect(cost('c', price, { model: 'vendor-h3-mini', resolution: '768P', duration: 5 })).toBe('10');
    expect(cost('c', price, { model: 'vendor-h3', resolution: '768P', duration: 5 })).toBe('5');
  });

  it('applies the rate of a resolution to its other spellings', () => {
    const price = 'second=1; resolution=1080p: second=3; resolution=2K: second=5; resolution=4K: second=9';
    const costOf = (resolution: string): string | undefined =>
      cost('a', price, a({ resolution, durationSeconds: 1 }));
    const resolutions = ['1920x1080', '1080P', '2k', '2160p', '3840x2160', '720p'];
    expect(resolutions.map(costOf)).toEqual(['3', '3', '5', '9', '9', '1']);
  });

  it("uses the price's default length if a request has no length", () => {
    const price = 'second=0.1 default_seconds=8';
    expect(cost('a', price, a({}))).toBe('0.8');
    expect(cost('a', price, a({ sampleCount: 3 }))).toBe('2.4');
    expect(cost('a', price, a({ durationSeconds: 4 }))).toBe('0.4');
    expect(cost('b', price, b({}))).toBe('0.8');
    expect(cost('c', price, { model: 'vendor-h3-mini' })).toBe('0.8');
    expect(cost('c', price, { model: 'vendor-h3-mini', seconds: '5' })).toBe('0.5');
    // An invalid length is not treated as omitted.
    expect(cost('a', price, a({ durationSeconds: 'long' }))).toBeUndefined();
  });

  it('includes the reference images beyond the free ones, in both fields of Protocol C, but not the frames', () => {
    const price = 'second=0.12 reference_image=0.20 free_reference_images=5 minimum=0.50';
    const urls = (count: number): string[] =>
      Array.from({ length: count }, (_, at) => `https://a.test/${at}`);
    const body = { model: 'vendor-h3', duration: 5 };
    expect(cost('c', price, { ...body, reference_image_urls: urls(5) })).toBe('0.6');
    expect(cost('c', price, { ...body, reference_image_urls: urls(7) })).toBe('1');
    expect(cost('c', price, { ...body, reference_image_urls: urls(5), images: urls(2) })).toBe('1');
    const framed = { ...body, image: 'https://a.test/1' };
    expect(cost('c', 'second=0.12 reference_image=0.20', framed)).toBe('0.6');
    expect(cost('c', 'second=0.12 reference_image=0.20', { ...framed, generation_mode: 'r2v' })).toBe('0.8');
    // Without a mode, the service chooses the mode from the assets.
    const both = { ...framed, reference_image_urls: urls(1) };
    expect(cost('c', 'second=0.12 reference_image=0.20', both)).toBe('1');
    expect(cost('c', 'second=0.12 reference_image=0.20', { ...both, generation_mode: 'i2v' })).toBe('0.8');
  });

  it('includes every file except a first frame under Protocol B', () => {
    const files = [{ Usage: 'Reference' }, { Usage: 'FirstFrame' }, { Type: 'Url' }];
    const body = { ...b({ Duration: 3 }), FileInfos: files };
    expect(cost('b', 'video=1 reference_image=0.1', body)).toBe('1.2');
  });

  it('is at least the minimum for each video, before the multipliers', () => {
    const price = 'second=0.01 minimum=0.50';
    const twice = { group: parseDecimal('2') };
    expect(cost('b', price, b({ Duration: 3 }))).toBe('0.5');
    expect(cost('b', price, b({ Duration: 60 }))).toBe('0.6');
    expect(cost('b', price, b({ Duration: 3 }), twice)).toBe('1');
    expect(cost('a', price, a({ durationSeconds: 8, sampleCount: 3 }))).toBe('1.5');
  });

  it.each<[ProtocolName, string, JsonObject]>([
    ['a', 'second=0.12', a({})],
    ['b', 'second=0.12', b({})],
    ['c', 'second=0.12', { model: 'another' }],
    ['c', '10k_characters=2', { model: 'vendor-h3' }],
    ['c', 'resolution=2K: second=0.4', { model: 'vendor-h3' }],
    ['a', 'resolution=1080p: video=1', a({})],
    ['a', 'second=1', a({ durationSeconds: 'long' })],
    ['c', 'second=1', { model: 'vendor-h3', seconds: 'long' }],
    ['a', 'second=1; resolution=1080p: video=2', a({})],
  ])('is unknown rather than 0 for Protocol %s, the price %s and the body %j', (name, text, body) => {
    expect(cost(name, text, body)).toBeUndefined();
    expect(cost(name, text, body, { group: parseDecimal('2') })).toBeUndefined();
  });

  it('is unknown if a price has a minimum for each video, but the request is not for videos', () => {
    const price = parsePrice('10k_characters=1 minimum=1', []);
    expect(costAtMost(price, speechQuantity({ req_params: { text: 'a' } }))).toBeUndefined();
  });

  it('uses the matching rate with the most conditions', () => {
    const price = 'second=1; resolution=1080p: second=2; resolution=1080p audio=true: second=3';
    const of = (parameters: JsonObject): string | undefined =>
      cost('a', price, a({ durationSeconds: 1, ...parameters }));
    expect(of({ resolution: '720p', generateAudio: true })).toBe('1');
    expect(of({ resolution: '1080p', generateAudio: false })).toBe('2');
    expect(of({ resolution: '1080P', generateAudio: true })).toBe('3');
  });

  it('is the highest price that an omitted field can cause', () => {
    const price = 'second=1; resolution=4k: second=5; resolution=480p: second=0.5';
    expect(cost('a', price, a({ durationSeconds: 2 }))).toBe('10');
    expect(cost('a', price, a({ durationSeconds: 2, resolution: '480p' }))).toBe('1');
  });

  it('uses the highest of the rates that match equally well', () => {
    expect(
      cost('b', 'resolution=720P: video=1; duration=5: video=2', b({ Resolution: '720P', Duration: 5 })),
    ).toBe('2');
  });

  it("uses a rate that matches a boolean in the protocol's spelling, or a ratio with a colon", () => {
    expect(cost('b', 'video=1; audio=true: video=2', b({ AudioGeneration: 'Enabled' }))).toBe('2');
    expect(cost('b', 'video=1; audio=true: video=2', b({ AudioGeneration: 'Disabled' }))).toBe('1');
    expect(cost('b', 'video=1; aspect_ratio=16:9: video=3', b({ AspectRatio: '16:9' }))).toBe('3');
  });

  it.each<[ProtocolName, string, JsonObject]>([
    ['a', 'audio=True: video=9; video=1', a({ generateAudio: true })],
    ['b', 'audio=Enabled: video=9; video=1', b({ AudioGeneration: 'Enabled' })],
    ['b', 'audio=disabled: video=9; video=1', b({ AudioGeneration: 'Disabled' })],
    [
      'c',
      'prompt_optimization=true: video=9; video=1',
      { model: 'vendor-h3-mini', prompt_optimization: true },
    ],
    ['c', 'duration=10.0: video=9; video=1', { model: 'vendor-h3-mini', duration: 10 }],
  ])('uses a rate for Protocol %s whose condition has another spelling: %s', (name, text, body) => {
    expect(cost(name, text, body)).toBe('9');
  });

  it('counts the code points of speech, not the bytes', () => {
    const price = parsePrice('10k_characters=2.5', []);
    const of = (text: string): string => {
      const found = costAtMost(price, speechQuantity({ req_params: { text } }));
      return found === undefined ? 'unknown' : formatDecimal(found);
    };
    expect(of('春眠不觉晓')).toBe('0.00125');
    expect(of('🚤')).toBe('0.00025');
    expect(of('x'.repeat(10_000))).toBe('2.5');
  });

  it('counts SSML as well as text, because some gateways speak the SSML instead', () => {
    const { characters, visibleCharacters } = speechQuantity({
      req_params: { text: 'hi', ssml: '<p>a b</p>' },
    });
    expect([characters, visibleCharacters]).toEqual([12, 11]);
  });

  it('excludes white space in speech only if the price does', () => {
    const of = (price: string): string | undefined =>
      jobCost(parsePrice(price, []), speechQuantity({ req_params: { text: 'a b\n春　眠' } }))?.at_most;
    expect([of('10k_characters=1'), of('10k_visible_characters=1')]).toEqual(['0.0007', '0.0004']);
  });

  it("is recorded for speech together with the price of 10,000 characters, so that the gateway's count can be priced", () => {
    const quantity = speechQuantity({ req_params: { text: 'abc' } });
    const factors = { group: parseAmount('1.5') };
    const price = parsePrice('10k_characters=2; format=mp3: 10k_characters=4', speechFlags);
    expect(jobCost(price, quantity, factors)).toEqual({
      at_most: '0.0018',
      per_10k_characters: '6',
    });
    expect(jobCost(parsePrice('second=1', []), { ...quantity, seconds: 2 })).toEqual({ at_most: '2' });
  });

  it('is multiplied exactly by the group and user factors', () => {
    const factors = { group: parseAmount('1.1'), user: parseAmount('0.7') };
    expect(cost('c', 'second=0.1', { model: 'vendor-h3', duration: 4 }, factors)).toBe('0.308');
  });

  it('can be parsed again, regardless of its number of digits', () => {
    const factor = fc.stringMatching(/^\d{1,12}\.\d{1,12}$/);
    fc.assert(
      fc.property(factor, factor, factor, fc.nat(30_000), (price, group, user, length) => {
        const plain = (text: string): string => text.replace(/^0+(?=\d)/, '');
        const factors = { group: parseAmount(plain(group)), user: parseAmount(plain(user)) };
        const quantity = speechQuantity({ req_params: { text: 'x'.repeat(length) } });
        const found = costAtMost(parsePrice(`10k_characters=${plain(price)}`, []), quantity, factors);
        const text = formatDecimal(found ?? parseAmount('1'));
        expect(formatDecimal(parseDecimal(text))).toBe(text);
      }),
    );
  });
});

describe('a price', () => {
  const { flags } = protocols.c;

  it.each<[string, RegExp]>([
    ['', /a price, such as second=0.12/],
    ['0.12', /0.12"? is not written as NAME=VALUE/],
    ['seconds=0.12', /seconds is not a unit; allowed: second, video, reference_image, 10k_characters/],
    ['second=', /not written as NAME=VALUE/],
    ['s=1', /s is not a unit/],
    ['default_seconds=5', /has no unit/],
    ['second=1 default_seconds=0', /default_seconds="0": must be a whole number above 0/],
    ['second=1 default_seconds=5 default_seconds=6', /default_seconds is specified twice/],
    ['reference_image=0.2', /must be combined with second or video/],
    ['second=1 free_reference_images=5', /allowed only with reference_image/],
    ['second=1 reference_image=1 free_reference_images=x', /must be a whole number above 0/],
    ['second=1 minimum=-1', /minimum="-1".*a decimal number/],
    ['second=1 minimum=1 minimum=2', /minimum is specified twice/],
    ['second=-1', /second="-1".*a decimal number/],
    ['second=0,12', /12/],
    ['second=1e3', /a decimal number/],
    ['second=$5', /a decimal number/],
    ['second=0.1234567890123', /at most 12/],
    ['second=1 second=2', /second is specified twice/],
    ['resolution=2K:second=0.4', /resolution is not a unit.*resolution=2K: second=0.40/],
    ['resolution=2K:', /is not a unit/],
    ['size=2K: second=0.4', /unknown field size; allowed: model, prompt, duration/],
    ['images=x: second=0.4', /unknown field images/],
    ['image=x: second=0.4', /unknown field image;/],
    ['prompt-optimization=on: video=9; video=1', /prompt-optimization=on: must be true or false/],
    ['duration=10s: video=9; video=1', /duration=10s: must be a number in digits, such as 5/],
    ['resolution: second=0.4', /NAME=VALUE/],
    ['__proto__=2K: second=0.4', /unknown field __proto__/],
  ])('is refused with the allowed values: %j', (text, message) => {
    expect(() => parsePrice(text, flags)).toThrow(message);
  });

  it('accepts only the units of its medium: no seconds for speech, and no characters for video', () => {
    expect(() => parsePrice('second=1', [], speechUnits)).toThrow(/allowed: 10k_characters/);
    expect(() => parsePrice('10k_characters=1 minimum=1', [], speechUnits)).toThrow(/minimum is not a unit/);
    expect(() => parsePrice('10k_characters=1', [], videoUnits)).toThrow(/allowed: second, video/);
  });

  it('is parsed, or refused with a reason, for any text', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          expect(parsePrice(text, flags).length).toBeGreaterThan(0);
        } catch (error) {
          expect((error as Error).message).toMatch(/allowed|such as|twice|there are/);
        }
      }),
    );
  });
});
