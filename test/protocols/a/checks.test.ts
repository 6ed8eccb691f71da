import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../../src/json.ts';
import { advise, check, unsetFlags } from '../../../src/protocols/a/checks.ts';
import { a } from '../../../src/protocols/a/protocol.ts';
import { compose, type FlagValue } from '../../../src/protocols/compose.ts';
import { videoCount } from '../../../src/protocols/protocol.ts';
import { goodBody, images } from './support.ts';

const png = { bytesBase64Encoded: images['image/png']?.toString('base64') ?? '', mimeType: 'image/png' };
const composed = (flags: Record<string, FlagValue>): JsonObject => a.normalize(compose(a, { flags }));

describe("Protocol A's flags", () => {
  test('set the fields that section 2.1 of the specification lists', () => {
    const body = composed({
      model: 'video-a',
      prompt: 'a cat',
      image: images['image/png'] ?? '',
      duration: '8',
      resolution: '1080p',
      'aspect-ratio': '9:16',
      audio: false,
      'negative-prompt': 'dogs',
      'sample-count': '2',
      'person-generation': 'allow_adult',
      seed: '0',
      'enhance-prompt': true,
    });
    expect(body).toEqual({
      model: 'video-a',
      instances: [{ prompt: 'a cat', image: png }],
      parameters: {
        durationSeconds: 8,
        resolution: '1080p',
        aspectRatio: '9:16',
        generateAudio: false,
        negativePrompt: 'dogs',
        sampleCount: 2,
        personGeneration: 'allow_adult',
        seed: 0,
        enhancePrompt: true,
      },
    });
    expect(check(body)).toEqual([]);
  });

  test.each(['4.5', 'NaN', '1e3', '5 ', '08', ''])('refuse --duration %j', (duration) => {
    expect(() => composed({ duration })).toThrow(
      /--duration \(parameters.durationSeconds\): .* whole number/,
    );
  });

  test.each(['0', '-1'])('accept --duration %s, which the body check then refuses', (duration) => {
    expect(check(composed({ model: 'm', prompt: 'p', duration }))).toEqual([
      {
        field: 'parameters.durationSeconds',
        value: duration,
        allowed: 'a whole number of seconds, 1 or more',
        flag: '--duration',
      },
    ]);
  });

  test('are named in the error if a file is not an image', () => {
    expect(() => composed({ image: Buffer.from('text') })).toThrow(/--image .*an image \(png/);
  });
});

describe('a Protocol A body', () => {
  test('remains unchanged if it is valid, even with unknown fields', () => {
    const body = {
      ...goodBody,
      instances: [{ prompt: 'p', lastFrame: { x: 1 } }],
      labels: {},
      parameters: { new: 1 },
    };
    expect(check(body)).toEqual([]);
    expect(a.normalize(body)).toEqual(body);
  });

  test.each<[string, JsonObject, string, string | undefined]>([
    ['no model', { instances: goodBody.instances }, 'model', '--model'],
    ['a model that is a number', { ...goodBody, model: 1 }, 'model', '--model'],
    ['a model name with a query', { ...goodBody, model: 'a?b' }, 'model', '--model'],
    ['a model name with ..', { ...goodBody, model: 'a/../b' }, 'model', '--model'],
    ['no instances', { model: 'm' }, 'instances.0.prompt', '--prompt'],
    ['empty instances', { model: 'm', instances: [] }, 'instances.0.prompt', '--prompt'],
    ['instances that are an object', { model: 'm', instances: {} }, 'instances', undefined],
    ['an instance that is a string', { model: 'm', instances: ['p'] }, 'instances.0', undefined],
    ['no prompt', { model: 'm', instances: [{}] }, 'instances.0.prompt', '--prompt'],
    ['a blank prompt', { model: 'm', instances: [{ prompt: ' \n' }] }, 'instances.0.prompt', '--prompt'],
    [
      'a second instance without a prompt',
      { model: 'm', instances: [{ prompt: 'p' }, {}] },
      'instances.1.prompt',
      undefined,
    ],
    ['parameters that are a list', { ...goodBody, parameters: [] }, 'parameters', undefined],
  ])('is refused if it has %s', (_, body, field, flag) => {
    const found = check(body);
    expect(found.map((violation) => [violation.field, violation.flag])).toEqual([[field, flag]]);
  });

  test.each<[string, unknown, string]>([
    ['sampleCount', 0, '--sample-count'],
    ['sampleCount', 1.5, '--sample-count'],
    ['durationSeconds', '8', '--duration'],
    ['durationSeconds', null, '--duration'],
    ['aspectRatio', 16, '--aspect-ratio'],
    ['resolution', '', '--resolution'],
    ['negativePrompt', true, '--negative-prompt'],
    ['personGeneration', [], '--person-generation'],
    ['seed', '9007199254740993', '--seed'],
    ['seed', 0.5, '--seed'],
    ['enhancePrompt', 'true', '--enhance-prompt'],
    ['generateAudio', 1, '--audio'],
  ])('is refused if parameters.%s is %j', (name, value, flag) => {
    const found = check({ ...goodBody, parameters: { [name]: value } as JsonObject });
    expect(found).toMatchObject([{ field: `parameters.${name}`, flag }]);
  });

  test.each<[string, unknown, string[]]>([
    ['a string instead of an object', 'AAAA', ['image']],
    ['null', null, ['image']],
    ['no members', {}, ['image.bytesBase64Encoded', 'image.mimeType']],
    ['no type', { ...png, mimeType: undefined }, ['image.mimeType']],
    ['no content', { ...png, bytesBase64Encoded: '' }, ['image.bytesBase64Encoded']],
    [
      'a Data URL',
      { ...png, bytesBase64Encoded: `data:image/png;base64,${png.bytesBase64Encoded}` },
      ['image.bytesBase64Encoded'],
    ],
    [
      'lenient Base64',
      { ...png, bytesBase64Encoded: `${png.bytesBase64Encoded}\n` },
      ['image.bytesBase64Encoded'],
    ],
    ['a type that contradicts the bytes', { ...png, mimeType: 'image/jpeg' }, ['image.mimeType']],
    ['valid members', png, []],
  ])('is accepted only with a valid image (checked: %s)', (_, image, fields) => {
    const found = check({ ...goodBody, instances: [{ prompt: 'p', image }] } as JsonObject);
    expect(found.map(({ field }) => field)).toEqual(fields.map((field) => `instances.0.${field}`));
    expect(found.every(({ flag }) => flag === '--image')).toBe(true);
  });

  test('is refused with an error that does not quote the whole image', () => {
    const image = { bytesBase64Encoded: `${'A'.repeat(5000)}*`, mimeType: 'image/png' };
    expect(check({ ...goodBody, instances: [{ prompt: 'p', image }] })[0]?.value.length).toBeLessThan(100);
  });
});

test.each<[JsonObject, number]>([
  [goodBody, 1],
  [{ ...goodBody, parameters: { sampleCount: 3 } }, 3],
  [{ instances: [{}, {}], parameters: { sampleCount: 2 } }, 4],
  [{ instances: 'x', parameters: { sampleCount: 'many' } }, 1],
  [{}, 1],
])('mgw counts the files that the body %j requests', (body, count) => {
  expect(videoCount(a, body)).toBe(count);
});

describe('advice for Protocol A', () => {
  test('is empty if duration, resolution and audio are set', () => {
    expect(advise(goodBody)).toEqual([]);
  });

  test("lists the flags for which the model's defaults apply", () => {
    expect(unsetFlags(goodBody)).toEqual([]);
    expect(unsetFlags({ ...goodBody, parameters: { resolution: '720p' } })).toEqual(['duration', 'audio']);
  });
});
