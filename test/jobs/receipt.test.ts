import { describe, expect, it } from 'vitest';
import type { Delivered } from '../../src/job.ts';
import { mismatchesOf, mismatchText } from '../../src/jobs/receipt.ts';
import type { Json } from '../../src/json.ts';
import { findProtocol } from '../../src/protocols/registry.ts';

const made = { duration: 5, width: 1280, height: 720, fps: 24, audio: false };

function differences(name: 'a' | 'b' | 'c', request: Json, delivered: Partial<Delivered> = {}): unknown[] {
  const protocol = findProtocol(name);
  if (protocol === undefined) throw new Error(`No protocol ${name}`);
  return mismatchesOf({ protocol: name, request }, { ...made, ...delivered }, protocol).map((each) => [
    each.field,
    each.asked,
    each.delivered,
  ]);
}

const c = (fields: Record<string, Json>): Json => ({ model: 'vendor-h3', prompt: 'a boat', ...fields });

describe('mismatchesOf', () => {
  it.each([
    ['a property that the request does not specify', c({}), { audio: true }],
    ['a difference of a tenth of a second', c({ duration: 5 }), { duration: 5.1 }],
    [
      'a difference of one frame in a video with a low frame rate',
      c({ duration: 5 }),
      { duration: 4.88, fps: 8 },
    ],
    ['sides rounded to multiples of 16', c({ resolution: '1080p' }), { width: 1920, height: 1088 }],
    ['a portrait video', c({ resolution: '720p', aspect_ratio: '9:16' }), { width: 720, height: 1280 }],
    ['a rounded aspect ratio', c({ aspect_ratio: '16:9' }), { width: 832, height: 464 }],
    ['values that specify no size', c({ resolution: 'auto', aspect_ratio: 'adaptive' }), {}],
    ['768P of a self-hosted model', { model: 'vendor-h3-mini', resolution: '768P' }, {}],
    ['either meaning of 2K', c({ resolution: '2K' }), { width: 2048, height: 1080 }],
    ['23.976 instead of 24 frames per second', c({ fps: 24 }), { fps: 23.976 }],
    ['a request that was not recorded', undefined as never, {}],
  ])('does not report %s as a mismatch', (_, request, delivered) => {
    expect(differences('c', request, delivered)).toEqual([]);
  });

  it.each<[string, 'a' | 'b' | 'c', Json, Partial<Delivered>, unknown[]]>([
    ['a short video', 'c', c({ duration: 5 }), { duration: 4.5 }, ['duration', 5, 4.5]],
    ['a long video', 'c', { seconds: '5' }, { duration: 10 }, ['duration', 5, 10]],
    [
      'a small video',
      'c',
      c({ resolution: '768P' }),
      { width: 1280, height: 720 },
      ['resolution', '768P', '1280x720'],
    ],
    [
      '480 lines instead of 768P from a self-hosted model',
      'c',
      { model: 'vendor-h3-mini', resolution: '768P' },
      { width: 854, height: 480 },
      ['resolution', '768P', '854x480'],
    ],
    [
      'a different aspect ratio',
      'b',
      { OutputConfig: { AspectRatio: '9:16' } },
      {},
      ['aspect_ratio', '9:16', '1280x720'],
    ],
    ['a different frame rate', 'c', c({ fps: 30 }), { fps: 24 }, ['fps', 30, 24]],
    ['missing sound', 'b', { OutputConfig: { AudioGeneration: 'Enabled' } }, {}, ['audio', true, false]],
    [
      'unrequested sound',
      'a',
      { parameters: { generateAudio: false } },
      { audio: true },
      ['audio', false, true],
    ],
  ])('reports %s', (_, protocol, request, delivered, expected) => {
    expect(differences(protocol, request, delivered)).toEqual([expected]);
  });

  it('reports a file without a picture, even if the request specifies no resolution', () => {
    const noSize = { width: undefined, height: undefined } as never;
    expect(differences('c', c({}), noSize)).toEqual([['resolution', 'a picture', 'no picture']]);
    expect(differences('c', c({ resolution: '720p' }), noSize)).toEqual([
      ['resolution', '720p', 'no picture'],
    ]);
  });

  it('returns mismatches as text that fits on one line', () => {
    const mismatches = [
      { field: 'duration', asked: 5, delivered: 4.5 },
      { field: 'aspect_ratio', asked: '16:9', delivered: '720x720' },
      { field: 'audio', asked: true, delivered: false },
      { field: 'resolution', asked: '720p', delivered: 'no picture' },
    ] as const;
    expect(mismatchText({ path: '/out/boat.mp4', mismatches: [...mismatches] })).toBe(
      'boat.mp4 differs from the request: duration 4.5 s instead of 5 s, aspect ratio 720x720 instead of 16:9, it has no sound, it has no picture.',
    );
  });
});
