import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../../src/json.ts';
import { compose } from '../../../src/protocols/compose.ts';
import { advise, check } from '../../../src/protocols/c/checks.ts';
import { c } from '../../../src/protocols/c/protocol.ts';

describe('a Protocol C submission', () => {
  const body = { model: 'vendor-h3', prompt: 'a "cat"\n字', unheard_of: [1, null] };

  it.each([
    [undefined, '/v1/video/generations'],
    ['generations', '/v1/video/generations'],
    ['videos', '/v1/videos'],
  ])('is sent, if the endpoint setting is %s, to %s', (endpoint, path) => {
    expect(c.submission(body, { endpoint })).toEqual({
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  });

  it('uses the first endpoint of the list by default', () => {
    expect(c.endpoints).toEqual(['generations', 'videos']);
    expect(c.submission(body)).toEqual(c.submission(body, { endpoint: 'generations' }));
  });

  it('is refused if its endpoint is unknown', () => {
    expect(() => c.submission(body, { endpoint: 'else' })).toThrow(
      expect.objectContaining({
        code: 'usage',
        message: '--endpoint: else is not allowed; allowed: generations, videos',
      }),
    );
  });
});

describe('normalize for Protocol C', () => {
  it('renames ratio to aspect_ratio unless both are set', () => {
    expect(c.normalize({ model: 'm', ratio: '1:1' })).toEqual({ model: 'm', aspect_ratio: '1:1' });
    const both = { ratio: '1:1', aspect_ratio: '16:9' };
    expect(c.normalize(both)).toEqual(both);
    expect(c.normalize({ seconds: 5 })).toEqual({ seconds: 5 });
  });
});

describe('a Protocol C query', () => {
  it.each([
    ['12345678901234567890', '12345678901234567890'],
    ['a/b', 'a%2Fb'],
    ['a b%c&d', 'a%20b%25c%26d'],
    ['a\\b', 'a%5Cb'],
    ['字', '%E5%AD%97'],
    ['cgt:x', 'cgt%3Ax'],
    ['x'.repeat(2048), 'x'.repeat(2048)],
  ])('contains the handle %s in its path as %s', (handle, step) => {
    expect(c.query(handle)).toEqual({ method: 'GET', path: `/v1/video/generations/${step}`, headers: {} });
  });

  it.each([
    ['a single dot', '.'],
    ['two dots inside a path', 'a/../../v1/models'],
    ['a NUL character', 'a\u0000'],
    ['a C1 control character', 'a\u0085'],
    ['too long', 'x'.repeat(2049)],
  ])('is refused if the handle is not one path segment: %s', (_, handle) => {
    expect(() => c.query(handle)).toThrow(
      expect.objectContaining({ code: 'result_unavailable', charged: 'yes', retry: 'never', exitCode: 9 }),
    );
  });
});

describe('advice for a valid Protocol C body', () => {
  it.each([
    [{ model: 'vendor-h3', duration: 5, resolution: '2K' }, []],
    [{ model: 'vendor-h3-mini', seconds: 5, resolution: '768P' }, ['768P is converted to 720p.']],
    [
      { model: 'vendor-h3', seconds: 5, mode: 't2va', resolution: '2K' },
      ['These native fields of the self-hosted models may not work with vendor-h3: seconds, mode.'],
    ],
    [
      { model: 'vendor-h3-mini', duration: 5.5 },
      ['5.5 seconds is not a whole number: the model may round it or refuse it.'],
    ],
    [{ model: 'vendor-h3-mini', seconds: '5' }, []],
    [
      { model: 'vendor-h3', duration: 5, resolution: '2K', aspect_ratio: '2:1' },
      ['The specification does not list the aspect ratio 2:1: the model may refuse it.'],
    ],
    [
      { model: 'vendor-h3-mini', duration: 5, ratio: 'adaptive' },
      ['With adaptive, the upstream chooses the aspect ratio.'],
    ],
    [
      { model: 'vendor-h4', duration: 5, resolution: '4K' },
      ['The specification does not list vendor-h4, so its limits are not checked.'],
    ],
  ])('is, for the body %j, the list %j', (body, notes) => {
    expect(advise(body)).toEqual(notes);
  });

  const adaptive = 'The specification advises --aspect-ratio adaptive for frames and references.';
  const noFirst =
    'last_frame_image_url is set without image, but the specification describes it together with a first frame.';
  const against = (field: string, mode: string, why: string): string =>
    `${field} contradicts the assets: "${mode}" ${why}.`;
  const [first, last, references] = [
    { image: 'https://x.example/1.png' },
    { last_frame_image_url: 'https://x.example/2.png' },
    { reference_image_urls: ['https://x.example/3.png'] },
  ];
  const [takesFirst, takesLast] = ['a first frame (image)', 'a last frame (last_frame_image_url)'];
  it.each<[string, JsonObject, string[]]>([
    ['vendor-h3', { ...first, ...last }, [adaptive]],
    ['vendor-h3', references, [adaptive]],
    ['vendor-h3', { ...references, aspect_ratio: 'adaptive' }, []],
    ['vendor-h3-mini', { ...first, ...last, ...references }, []],
    ['vendor-h3-mini', last, [noFirst]],
    ['vendor-h3-mini', { ...last, mode: 'l2va' }, []],
    ['vendor-h3-mini', { ...last, images: [], generation_mode: 'i2v' }, [noFirst]],
    [
      'vendor-h3-mini',
      { ...first, generation_mode: 't2v' },
      [against('generation_mode', 't2v', `does not accept ${takesFirst}`)],
    ],
    ['vendor-h3-mini', { generation_mode: 'i2v' }, [against('generation_mode', 'i2v', 'needs an image')]],
    [
      'vendor-h3-mini',
      { ...first, ...references, generation_mode: 'i2v' },
      [against('generation_mode', 'i2v', 'does not accept references')],
    ],
    ['vendor-h3-mini', { ...references, generation_mode: 'r2v' }, []],
    ['vendor-h3-mini', { ...first, generation_mode: 'r2v' }, []],
    ['vendor-h3', { generation_mode: 'r2v' }, [against('generation_mode', 'r2v', 'needs a reference')]],
    [
      'vendor-h3-mini',
      { audios: ['https://x.example/a.mp3'], mode: 't2va' },
      [against('mode', 't2va', 'does not accept references')],
    ],
    ['vendor-h3-mini', { ...first, mode: 'fl2va' }, [against('mode', 'fl2va', `needs ${takesLast}`)]],
    [
      'vendor-h3-mini',
      { ...last, mode: 'i2va' },
      [against('mode', 'i2va', `needs ${takesFirst} and does not accept ${takesLast}`)],
    ],
    [
      'vendor-h3-mini',
      { ...first, ...last, mode: 'ref2va' },
      [against('mode', 'ref2va', `does not accept ${takesLast}`)],
    ],
  ])('is, for the model %s and the fields %j, the list %j', (model, assets, notes) => {
    const body = { model, duration: 5, resolution: model === 'vendor-h3' ? '2K' : '720p', ...assets };
    expect(advise(body)).toEqual(notes);
  });
});

describe("Protocol C's flags", () => {
  it('are composed into one body', () => {
    const flags = {
      model: 'vendor-h3-mini',
      prompt: 'a cat',
      duration: '5',
      'aspect-ratio': '9:16',
      'reference-image': ['https://x.example/1.png', 'https://x.example/2.png'],
      'prompt-optimization': true,
    };
    const body = compose(c, { flags, set: ['seed=7'], defaults: { resolution: '720p', duration: 8 } });
    expect(body).toEqual({
      model: 'vendor-h3-mini',
      prompt: 'a cat',
      duration: 5,
      aspect_ratio: '9:16',
      reference_image_urls: ['https://x.example/1.png', 'https://x.example/2.png'],
      prompt_optimization: true,
      seed: 7,
      resolution: '720p',
    });
    expect(check(body)).toEqual([]);
    expect(c.modelOf(body)).toBe('vendor-h3-mini');
  });

  it.each(['1e3', '5 ', ' 5', 'NaN', '', '5s', '0x5'])('refuse the duration %j', (duration) => {
    expect(() => compose(c, { flags: { duration } })).toThrow(
      expect.objectContaining({ code: 'usage', message: expect.stringContaining('--duration: ') as string }),
    );
  });

  it.each([
    ['3.5', 3.5],
    ['0', 0],
    ['-1', -1],
  ])('accept the duration %s, which the body check then refuses', (duration, number) => {
    const body = compose(c, { flags: { duration, model: 'vendor-h3', prompt: 'x' } });
    expect(body['duration']).toBe(number);
    expect(check(body).map(({ flag }) => flag)).toEqual(['--duration']);
  });

  it('are overridden by native fields only if the values of the flags are defaults', () => {
    const defaults = { duration: 8, 'aspect-ratio': '1:1', mode: 't2v' };
    const body = { seconds: 5, ratio: '16:9', mode: 't2va' };
    expect(compose(c, { defaults, body, flags: {} })).toEqual(body);
  });
});
