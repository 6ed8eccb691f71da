import { describe, expect, it } from 'vitest';
import * as z from 'zod/mini';
import type { JsonObject } from '../../src/json.ts';
import { longName } from '../../src/protocols/compose.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { violationMessage } from '../../src/protocols/violations.ts';

const good: Record<'a' | 'b' | 'c', JsonObject> = {
  a: {
    model: 'video-a',
    instances: [{ prompt: 'a cat' }],
    parameters: { durationSeconds: 8, resolution: '720p', generateAudio: true },
  },
  b: {
    ModelName: 'Video-B',
    ModelVersion: '1.0',
    Prompt: 'a cat',
    OutputConfig: { Resolution: '720P', Duration: 5, AudioGeneration: 'Enabled' },
  },
  c: { model: 'vendor-h3', prompt: 'a cat', duration: 5, resolution: '2K' },
};

it.each<['a' | 'b' | 'c', JsonObject, string]>([
  ['a', { instances: [{ prompt: 'a\0b' }] }, 'instances.0.prompt'],
  ['b', { Prompt: 'a cat', SessionContext: '\0' }, 'SessionContext'],
  ['c', { prompt: 'a cat', metadata: { 'x\0': 1 } }, 'metadata.x\0'],
])('a NUL character is refused in any text (Protocol %s, %j)', async (name, members, field) => {
  const { check } = await protocols[name].checks();
  expect(check({ ...good[name], ...members })).toMatchObject([{ field, value: 'text with a NUL character' }]);
});

it('a note about unlisted fields names only a few of them', async () => {
  const { check, advise } = await protocols.c.checks();
  const body = { ...good.c, ...Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`k${n}x`, n])) };
  expect(check(body)).toEqual([]);
  expect(advise(body).filter((text) => /k49x and 150 more\.$/.test(text))).toHaveLength(1);
});

describe('a field that the specification does not list', () => {
  it.each<['a' | 'b' | 'c', JsonObject, string, string]>([
    ['a', { promt: 'x' }, 'promt', 'instances.0.prompt'],
    ['a', { durationSeconds: 8 }, 'durationSeconds', 'parameters.durationSeconds'],
    ['a', { audio: true }, 'audio', 'parameters.generateAudio'],
    ['a', { instances: [{ prompt: 'x', imge: {} }] }, 'instances.0.imge', 'instances.0.image'],
    ['a', { parameters: { seeed: 1 } }, 'parameters.seeed', 'parameters.seed'],
    [
      'a',
      { parameters: { negative_prompt: 'x' } },
      'parameters.negative_prompt',
      'parameters.negativePrompt',
    ],
    ['b', { Promtp: 'x' }, 'Promtp', 'Prompt'],
    ['b', { audio: true }, 'audio', 'OutputConfig.AudioGeneration'],
    ['b', { OutputConfig: { Duraton: 5 } }, 'OutputConfig.Duraton', 'OutputConfig.Duration'],
    ['c', { refrence_image_urls: [] }, 'refrence_image_urls', 'reference_image_urls'],
    ['c', { last_frame: 'https://x.example/1' }, 'last_frame', 'last_frame_image_url'],
    ['c', { aspectRatio: '16:9' }, 'aspectRatio', 'aspect_ratio'],
  ])('is refused if it resembles a listed field (Protocol %s, %j)', async (name, members, field, meant) => {
    const { check } = await protocols[name].checks();
    expect(check({ ...good[name], ...members })).toMatchObject([{ field, meant }]);
  });

  it('is refused with an error that suggests the likely field and explains how to send the unlisted one', async () => {
    const { check } = await protocols.c.checks();
    const found = check({ ...good.c, refrence_image_urls: [] });
    expect(violationMessage(found, 'vendor-h3')).toBe(
      'refrence_image_urls: no such field for vendor-h3; did you mean reference_image_urls? To send it unchanged, use --no-check.',
    );
  });

  it.each<['a' | 'b' | 'c', JsonObject, string]>([
    [
      'a',
      { labels: {}, parameters: { ...(good.a['parameters'] as object), fps: 24 } },
      'labels, parameters.fps',
    ],
    ['b', { Seed: 7, SceneType: 'x' }, 'Seed, SceneType'],
    ['c', { seed: 7, nested: { a: [] } }, 'seed, nested'],
    ['c', JSON.parse('{"\\u001bx":1,"__proto__":{"y":1}}') as JsonObject, '\\u{1b}x, __proto__'],
  ])(
    'is sent with a note if it resembles no listed field (Protocol %s, %j)',
    async (name, members, fields) => {
      const { check, advise } = await protocols[name].checks();
      const body = { ...good[name], ...members };
      expect(check(body)).toEqual([]);
      const notes = advise(body).filter((note) =>
        note.startsWith('Fields that are not in the specification'),
      );
      expect(notes).toHaveLength(1);
      for (const field of fields.split(', ')) expect(notes[0]).toContain(field);
      expect(advise(good[name])).toEqual([]);
    },
  );
});

describe.each(Object.values(protocols))('the schema of Protocol $name', (protocol) => {
  it("is valid JSON Schema, and describes each flag's field", async () => {
    const { schema } = await protocol.checks();
    const written = z.toJSONSchema(schema, { io: 'input' });
    for (const flag of protocol.flags) {
      if (protocol.flags.filter(({ field }) => field === flag.field).length > 1) continue;
      const variants = (written.anyOf ?? [written]) as JsonObject[];
      for (const variant of variants)
        expect(propertyAt(variant, flag.field), longName(flag)).toMatchObject({
          description: flag.fieldDescription ?? flag.description,
        });
    }
  });

  it('mentions neither flags nor values that only flags accept', async () => {
    const { schema } = await protocol.checks();
    const text = JSON.stringify(z.toJSONSchema(schema, { io: 'input' }));
    const names = protocol.flags.map((flag) => `--${longName(flag)}`);
    for (const each of ['@JOB', '@FILE', 'JPEG file', ...names]) expect(text).not.toContain(each);
  });
});

function propertyAt(schema: JsonObject, field: string): JsonObject {
  return field
    .split('.')
    .reduce(
      (found, step) =>
        (step === '0' ? found['items'] : (found['properties'] as JsonObject)[step]) as JsonObject,
      schema,
    );
}

it('the schemas contain the limits of section 8 of the specification', async () => {
  const { schema } = await protocols.c.checks();
  const [official, selfHosted] = (z.toJSONSchema(schema, { io: 'input' }).anyOf ?? []) as JsonObject[];
  expect(official).toMatchObject({
    properties: {
      model: { enum: ['vendor-h3'] },
      // Only the self-hosted models limit the prompt, to 30,000 characters.
      prompt: { type: 'string' },
      duration: { type: 'number', minimum: 4, maximum: 15 },
      resolution: { enum: ['768P', '2K'] },
      reference_image_urls: { maxItems: 9 },
    },
    required: ['model'],
  });
  expect(selfHosted).toMatchObject({
    properties: {
      prompt: { maxLength: 30_000 },
      duration: { type: 'number', minimum: 5, maximum: 15 },
      reference_video_urls: { maxItems: 0 },
    },
    required: ['model', 'prompt'],
  });
});
