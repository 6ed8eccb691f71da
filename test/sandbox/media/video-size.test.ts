import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { videoSize } from '../../../src/sandbox/media/video.ts';

describe('videoSize', () => {
  it.each([
    ['720p', '16:9', 1280, 720],
    ['720P', '9:16', 720, 1280],
    ['720p', '1:1', 720, 720],
    ['720p', '4:3', 960, 720],
    ['720p', '3:4', 720, 960],
    ['720p', '21:9', 1680, 720],
    ['720p', '9:21', 720, 1680],
    ['720p', '4:5', 720, 900],
    ['720p', '5:4', 900, 720],
    ['768P', '16:9', 1366, 768],
    ['480p', '16:9', 854, 480],
    ['1080p', '16:9', 1920, 1080],
    ['2K', '16:9', 2560, 1440],
    ['2k', '9:16', 1440, 2560],
    ['4k', '16:9', 3840, 2160],
    ['2160p', '16:9', 3840, 2160],
  ])('returns the size for %s at %s: %i x %i px', (resolution, ratio, width, height) => {
    expect(videoSize(resolution, ratio)).toEqual({ width, height });
  });

  it.each(['adaptive', '', '0:9', '16:0', '1:99', '16/9', '-4:3'])(
    'treats the ratio "%s" as 16:9',
    (ratio) => {
      expect(videoSize('720p', ratio)).toEqual({ width: 1280, height: 720 });
    },
  );

  it.each(['', 'best', '0p', '1p', '99999p', '8k'])('treats the resolution "%s" as 720p', (resolution) => {
    expect(videoSize(resolution, '16:9')).toEqual({ width: 1280, height: 720 });
  });

  it('always returns side lengths that are valid for a video', () => {
    const side = fc.integer({ min: 0, max: 40 });
    const property = fc.property(fc.integer({ min: 0, max: 5000 }), side, side, (lines, across, down) => {
      const { width, height } = videoSize(`${lines}p`, `${across}:${down}`);
      for (const pixels of [width, height]) {
        expect(pixels % 2).toBe(0);
        expect(pixels).toBeGreaterThanOrEqual(2);
      }
      expect(Math.max(width, height)).toBeLessThanOrEqual(4 * 2160);
    });
    fc.assert(property);
  });
});
