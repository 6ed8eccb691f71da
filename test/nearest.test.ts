import { expect, it } from 'vitest';
import { nearestName } from '../src/nearest.ts';

const names = ['reference_image_urls', 'reference_audio_urls', 'prompt', 'duration', 'mode', 'ModelVersion'];

it.each([
  ['refrence_image_urls', 'reference_image_urls'],
  ['reference_adio_ulrs', 'reference_audio_urls'],
  ['promt', 'prompt'],
  ['prmopt', 'prompt'],
  ['Prompt', 'prompt'],
  ['model-version', 'ModelVersion'],
  ['MODEL_VERSION', 'ModelVersion'],
  ['durations', 'duration'],
  ['duartion', 'duration'],
  ['mod', undefined],
  ['nose', undefined],
  ['seed', undefined],
  ['', undefined],
  ['direction', undefined],
  ['reflection', undefined],
])('the nearest word to %s is %s', (name, nearest) => {
  expect(nearestName(name, names)).toBe(nearest);
});

it('the nearest of several words is returned without comparing words that cannot be near', () => {
  expect(nearestName('reference_image_url', ['reference_audio_urls', 'reference_image_urls'])).toBe(
    'reference_image_urls',
  );
  expect(nearestName('x'.repeat(1_000_000), names)).toBeUndefined();
});
