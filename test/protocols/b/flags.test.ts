import { expect, test } from 'vitest';
import { check } from '../../../src/protocols/b/checks.ts';
import { b } from '../../../src/protocols/b/protocol.ts';
import { compose, type FlagValue } from '../../../src/protocols/compose.ts';

function bodyOf(flags: Record<string, FlagValue>) {
  return b.normalize(compose(b, { flags }));
}

test('every Protocol B flag sets the field that the specification lists', () => {
  const body = bodyOf({
    model: 'Video-B',
    'model-version': '2.0',
    prompt: 'a cat',
    'negative-prompt': 'a dog',
    'first-frame': 'https://p.example/f.png',
    reference: ['https://p.example/1.png', 'https://p.example/2.png'],
    duration: '5',
    resolution: '720P',
    'aspect-ratio': '16:9',
    audio: true,
    'storage-mode': 'Temporary',
    'ext-info': '{"a":1}',
    'return-usage': true,
  });
  expect(body).toEqual({
    ModelName: 'Video-B',
    ModelVersion: '2.0',
    Prompt: 'a cat',
    NegativePrompt: 'a dog',
    FileInfos: [
      { Type: 'Url', Url: 'https://p.example/f.png', Category: 'Image', Usage: 'FirstFrame' },
      { Type: 'Url', Url: 'https://p.example/1.png', Category: 'Image', Usage: 'Reference' },
      { Type: 'Url', Url: 'https://p.example/2.png', Category: 'Image', Usage: 'Reference' },
    ],
    OutputConfig: {
      Duration: 5,
      Resolution: '720P',
      AspectRatio: '16:9',
      AudioGeneration: 'Enabled',
      StorageMode: 'Temporary',
    },
    ExtInfo: '{"a":1,"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}',
  });
  expect(check(body)).toEqual([]);
  expect(b.modelOf(body)).toBe('Video-B');
});

test('a Protocol B body contains only the fields that flags set', () => {
  expect(bodyOf({ model: 'm', prompt: 'p' })).toEqual({ ModelName: 'm', Prompt: 'p' });
});

test('--no-audio sends Disabled, and --no-return-usage sends nothing', () => {
  expect(bodyOf({ audio: false, 'return-usage': false })).toEqual({
    OutputConfig: { AudioGeneration: 'Disabled' },
  });
});

test.each([
  ['duration', '4.5'],
  ['duration', '1e3'],
  ['storage-mode', 'temporary'],
  ['prompt', ' '],
  ['first-frame', ''],
])('Protocol B refuses --%s %j', (name, value) => {
  expect(() => bodyOf({ [name]: value })).toThrow(expect.objectContaining({ code: 'usage' }));
});
