import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json, JsonObject } from '../../../src/json.ts';
import { check } from '../../../src/protocols/c/checks.ts';
import { c } from '../../../src/protocols/c/protocol.ts';
import { readModels } from '../../../src/protocols/models.ts';
import { violationMessage } from '../../../src/protocols/violations.ts';

const url = 'https://cdn.example.com/a.png';
const official = 'vendor-h3';
const selfHosted = ['vendor-h3-base', 'vendor-h3-base-fast', 'vendor-h3-mini'];
const models = [official, ...selfHosted];

/** Returns the body's fields that break a rule. */
function broken(body: JsonObject): string[] {
  return check(c.normalize(body)).map(({ field }) => field);
}

function message(body: JsonObject): string {
  return violationMessage(check(c.normalize(body)));
}

function urls(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `https://cdn.example.com/${index}.png`);
}

describe('a valid Protocol C body', () => {
  it.each(models)('passes the check with only a model and a prompt (%s)', (model) => {
    expect(broken({ model, prompt: 'a cat' })).toEqual([]);
  });

  it('passes the check with every field at its maximum', () => {
    const prompt = 'x'.repeat(30_000);
    const assets = { image: url, last_frame_image_url: url, images: urls(9), reference_image_urls: urls(9) };
    const common = { ...assets, prompt, duration: 15, generation_mode: 'r2v', reference_audio_urls: urls(3) };
    expect(broken({ ...common, model: official, resolution: '2K', reference_video_urls: urls(3) })).toEqual(
      [],
    );
    for (const model of selfHosted)
      expect(
        broken({ ...common, model, resolution: '720p', prompt_optimization: true, reference_video_urls: [] }),
      ).toEqual([]);
  });

  it('passes the check with unknown and native fields', () => {
    const native = { seconds: '8', audios: urls(3), mode: 'ref2va', images: urls(1) };
    expect(broken({ model: 'vendor-h3-mini', prompt: 'x', ...native, seed: -1, nested: { a: [] } })).toEqual(
      [],
    );
  });

  it('needs a prompt or an asset for the official model', () => {
    for (const input of ['prompt', 'image', 'last_frame_image_url', 'input_reference'])
      expect(broken({ model: official, [input]: url })).toEqual([]);
    for (const body of [{}, { prompt: '' }, { images: [] }])
      expect(message({ model: official, ...body })).toBe(
        '--prompt: missing; needed: text, unless there is an image or a reference',
      );
  });
});

describe('the check of a Protocol C body', () => {
  it.each<[string, Json, boolean]>([
    [official, 3, false],
    [official, 4, true],
    [official, 15, true],
    [official, 16, false],
    ...selfHosted.flatMap((model): [string, Json, boolean][] => [
      [model, 4, false],
      [model, 5, true],
      [model, 15, true],
      [model, 16, false],
    ]),
    [official, 3.9, false],
    [official, 4.5, true],
    ['vendor-h3-mini', 4.9, false],
    ['vendor-h3-mini', 5.5, true],
    ['vendor-h3-mini', 15.1, false],
    ['vendor-h4', 2.5, true],
    ['vendor-h4', 0, false],
    ['vendor-h4', '5', false],
    [official, 0, false],
    [official, -5, false],
    [official, 1e3, false],
    [official, '5', false],
    [official, null, false],
    [official, [5], false],
    [official, true, false],
  ])('limits the duration for %s (%j is allowed: %s)', (model, duration, allowed) => {
    expect(broken({ model, prompt: 'x', duration })).toEqual(allowed ? [] : ['duration']);
  });

  it.each<[Json, boolean]>([
    [5, true],
    ['5', true],
    [15, true],
    ['15', true],
    [4, false],
    ['4', false],
    [16, false],
    ['16', false],
    ['4.5', false],
    [4.5, false],
    ['5.5', true],
    [5.5, true],
    ['05', false],
    ['5 ', false],
    ['1e1', false],
    ['', false],
    [null, false],
    [true, false],
  ])('limits seconds (%j is allowed: %s)', (seconds, allowed) => {
    expect(broken({ model: 'vendor-h3-mini', prompt: 'x', seconds })).toEqual(allowed ? [] : ['seconds']);
  });

  it.each<[string, Json, boolean]>([
    [official, '768P', true],
    [official, '2K', true],
    [official, '720p', false],
    [official, '768p', false],
    [official, '2k', false],
    [official, '1080P', false],
    [official, 768, false],
    ['vendor-h3-mini', '720p', true],
    ['vendor-h3-mini', '768P', true],
    ['vendor-h3-mini', '2K', false],
    ['vendor-h3-mini', '720P', false],
    ['vendor-h3-mini', '', false],
  ])('limits the resolution for %s (%j is allowed: %s)', (model, resolution, allowed) => {
    expect(broken({ model, prompt: 'x', resolution })).toEqual(allowed ? [] : ['resolution']);
  });

  it.each(models)('limits the aspect ratio for %s', (model) => {
    const allowed = ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', '9:21', '4:5', '5:4', 'adaptive'];
    for (const ratio of allowed) {
      expect(broken({ model, prompt: 'x', aspect_ratio: ratio })).toEqual([]);
      expect(broken({ model, prompt: 'x', ratio })).toEqual([]);
    }
    for (const ratio of ['', null, 1.78])
      expect(broken({ model, prompt: 'x', aspect_ratio: ratio })).toEqual(['aspect_ratio']);
    // Only the self-hosted models have a list of ratios.
    for (const ratio of ['2:1', '16x9', 'Adaptive', '16:9 '])
      expect(broken({ model, prompt: 'x', ratio })).toEqual(model === official ? [] : ['aspect_ratio']);
  });

  it.each(selfHosted)('limits the number of characters, not bytes, of the prompt for %s', (model) => {
    for (const character of ['x', '字', '😀']) {
      expect(broken({ model, prompt: character.repeat(30_000) })).toEqual([]);
      expect(message({ model, prompt: character.repeat(30_001) })).toBe(
        '--prompt: text of 30001 characters is not allowed; allowed: text of 1 to 30000 characters',
      );
    }
    for (const prompt of ['', ' \n', null, 5, ['x']]) expect(broken({ model, prompt })).toEqual(['prompt']);
  });

  it.each([official, 'vendor-h4'])('does not limit the length of the prompt for %s', (model) => {
    expect(broken({ model, prompt: 'x'.repeat(30_001) })).toEqual([]);
    for (const prompt of [null, 5, ['x']]) expect(broken({ model, prompt })).toEqual(['prompt']);
  });

  it('requires a prompt for the self-hosted models', () => {
    for (const model of selfHosted)
      expect(message({ model })).toBe('--prompt: missing; needed: text of 1 to 30000 characters');
  });

  it.each([
    ['images', 9],
    ['reference_image_urls', 9],
    ['reference_video_urls', 3],
    ['reference_audio_urls', 3],
    ['audios', 3],
  ])('limits the list %s to %i entries', (field, max) => {
    const body = { model: official, prompt: 'x' };
    expect(broken({ ...body, [field]: urls(max) })).toEqual([]);
    expect(broken({ ...body, [field]: urls(max + 1) })).toEqual([field]);
    for (const wrong of [url, null, {}, 5]) expect(broken({ ...body, [field]: wrong })).toEqual([field]);
    for (const wrong of [null, 5, {}, '', 'file:///x'])
      expect(broken({ ...body, [field]: [url, wrong] })).toEqual([`${field}.1`]);
  });
});

describe('the check of a body for a self-hosted model', () => {
  it.each(selfHosted)('refuses reference videos (%s)', (model) => {
    expect(message({ model, prompt: 'x', reference_video_urls: urls(1) })).toBe(
      '--reference-video (reference_video_urls): a list of 1 is not allowed; allowed: none, because only vendor-h3 accepts reference videos',
    );
  });

  it.each(['r2v', 'ref2va'])('refuses the multi-reference mode %s without images or audio', (mode) => {
    const name = mode === 'r2v' ? 'generation_mode' : 'mode';
    for (const model of selfHosted) {
      const body = { model, prompt: 'x', [name]: mode };
      expect(broken(body)).toEqual([name]);
      expect(broken({ ...body, last_frame_image_url: url, reference_image_urls: [] })).toEqual([name]);
      for (const asset of ['image', 'input_reference']) expect(broken({ ...body, [asset]: url })).toEqual([]);
      for (const asset of ['images', 'reference_image_urls', 'reference_audio_urls', 'audios'])
        expect(broken({ ...body, [asset]: [url] })).toEqual([]);
    }
    expect(broken({ model: official, prompt: 'x', [name]: mode })).toEqual([]);
  });
});

describe('prompt_optimization', () => {
  it('must be true or false, and is accepted only for the self-hosted models', () => {
    const body = { model: 'vendor-h3-mini', prompt: 'x' };
    for (const value of [true, false]) {
      expect(broken({ ...body, prompt_optimization: value })).toEqual([]);
      expect(broken({ ...body, model: official, prompt_optimization: value })).toEqual([
        'prompt_optimization',
      ]);
    }
    for (const value of ['true', 1, null])
      expect(broken({ ...body, prompt_optimization: value })).toEqual(['prompt_optimization']);
  });
});

describe('the mode fields of a Protocol C body', () => {
  it("accept only the specification's exact spelling", () => {
    const body = { model: official, prompt: 'x', image: url };
    for (const mode of ['t2v', 'i2v', 'r2v']) expect(broken({ ...body, generation_mode: mode })).toEqual([]);
    for (const mode of ['t2va', 'i2va', 'fl2va', 'l2va', 'ref2va'])
      expect(broken({ ...body, mode })).toEqual([]);
    for (const mode of ['T2V', 't2va', '', null, 1])
      expect(broken({ ...body, generation_mode: mode })).toEqual(['generation_mode']);
    for (const mode of ['t2v', 'REF2VA', '', null, 1]) expect(broken({ ...body, mode })).toEqual(['mode']);
  });
});

describe('fields with the same meaning', () => {
  it.each([
    ['duration', 5, 'seconds', '5'],
    ['aspect_ratio', '16:9', 'ratio', '16:9'],
    ['generation_mode', 't2v', 'mode', 't2va'],
    ['reference_audio_urls', [url], 'audios', [url]],
  ])('are refused if both are set: %s %j and %s %j', (unified, one, native, other) => {
    const body = { model: 'vendor-h3-mini', prompt: 'x', [unified]: one, [native]: other };
    expect(broken(body)).toEqual([unified]);
    expect(message(body)).toContain(`${unified} or ${native}, not both`);
  });
});

describe('the model in a body', () => {
  const named = 'the name of a model, such as vendor-h3, vendor-h3-base, vendor-h3-base-fast, vendor-h3-mini';
  it.each<[Json | undefined, string]>([
    [undefined, '--model: missing; needed'],
    ['', '--model: "" is not allowed; allowed'],
    [null, '--model: null is not allowed; allowed'],
    [['vendor-h3'], '--model: a list of 1 is not allowed; allowed'],
  ])('is refused if it is %j', (model, start) => {
    expect(message({ model, prompt: 'x' })).toBe(`${start}: ${named}`);
  });

  it('limits the check of the body to types and counts if the specification does not list the model', () => {
    const model = 'vendor-h4';
    expect(
      broken({ model, duration: 60, resolution: '8K', ratio: '2:1', reference_video_urls: urls(3) }),
    ).toEqual([]);
    expect(broken({ model, duration: 'long', images: urls(10), duratoin: 5 })).toEqual([
      'duration',
      'images',
      'duratoin',
    ]);
  });

  it('must be in the model list if the specification does not list it', () => {
    const listed = readModels({
      status: 200,
      headers: {},
      text: JSON.stringify({ data: [{ id: 'vendor-h4', protocol: 'c' }, { id: 'plain' }] }),
      complete: true,
    });
    const known = 'models' in listed ? listed.models : [];
    expect(c.needsListing?.({ model: official })).toBeUndefined();
    expect(c.needsListing?.({ model: 'vendor-h4' })).toBe('check');
    for (const model of ['vendor-h4', 'plain']) expect(c.complete?.({ model }, known)).toEqual({ model });
    expect(() => c.complete?.({ model: 'vendor-h5' }, known)).toThrow(
      '--model: vendor-h5 is not allowed; allowed: vendor-h4, vendor-h3,',
    );
  });
});

describe('an asset of a Protocol C body', () => {
  it.each(['image', 'last_frame_image_url', 'input_reference'])(
    'must be a public http(s) URL in the field %s',
    (field) => {
      const body = { model: official, prompt: 'x' };
      expect(broken({ ...body, [field]: url })).toEqual([]);
      for (const wrong of [
        '',
        'a.png',
        'data:image/png;base64,AA',
        'http://127.0.0.1/a',
        'https://u:p@x.y/a',
        5,
        null,
      ])
        expect(broken({ ...body, [field]: wrong })).toEqual([field]);
      expect(message({ ...body, image: 'http://169.254.169.254/a' })).toBe(
        '--image: http://169.254.169.254/a is not allowed; ' +
          'allowed: an http(s) URL that the public internet can reach (this one points to a private network)',
      );
    },
  );

  it('is accepted in input_reference as a URL, a list, or an object with the URL', () => {
    const body = { model: official, prompt: 'x' };
    for (const value of [[url, url], { url }, { image_url: url, type: 'image' }, {}])
      expect(broken({ ...body, input_reference: value })).toEqual([]);
    expect(broken({ ...body, input_reference: [url, 'file:///x'] })).toEqual(['input_reference.1']);
    expect(broken({ ...body, input_reference: { image_url: 'file:///x' } })).toEqual([
      'input_reference.image_url',
    ]);
  });
});

describe('error messages of the Protocol C check', () => {
  it('are short, and contain the flag, the value and the allowed values', () => {
    expect(
      violationMessage(check({ model: 'vendor-h3-mini', prompt: 'x', duration: 4 }), 'vendor-h3-mini'),
    ).toBe('--duration: 4 is not allowed for vendor-h3-mini; allowed: 5 to 15 seconds');
    fc.assert(
      fc.property(
        fc.constantFrom('model', 'prompt', 'resolution', 'image', 'mode'),
        fc.jsonValue(),
        (field, value) => {
          for (const line of message({ model: official, [field]: value }).split('\n')) {
            expect(line.length).toBeLessThan(250);
            expect(line).not.toMatch(/[\p{Cc}\p{Cf}]/u);
          }
        },
      ),
      { numRuns: 50 },
    );
  });
});
