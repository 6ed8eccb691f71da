import { describe, expect, it } from 'vitest';

import {
  encodeDifference,
  encodeIdr,
  pictureParameterSet,
  sequenceParameterSet,
} from '../../../src/sandbox/media/h264.ts';
import { hslColour, packColour, seededRandom } from '../../../src/sandbox/media/scene.ts';
import { renderVideo, videoSize, type VideoOptions } from '../../../src/sandbox/media/video.ts';
import { ffmpeg, ffprobe, hasFfmpeg } from './ffmpeg.ts';

const HD: VideoOptions = { prompt: 'a lighthouse at dusk', seconds: 5, width: 1280, height: 720 };

describe('renderVideo', () => {
  const short = { ...HD, width: 160, height: 96, seconds: 1 };
  const bytesOf = (options: VideoOptions): Buffer => Buffer.from(renderVideo(options));

  it('creates a small file that can be played while it arrives, with a key frame every two seconds', () => {
    const file = bytesOf(HD);
    expect(file.length).toBeLessThan(200_000);
    const boxes: string[] = [];
    for (let at = 0; at < file.length; at += file.readUInt32BE(at))
      boxes.push(file.toString('latin1', at + 4, at + 8));
    expect(boxes).toEqual(['ftyp', 'moov', 'mdat']);
    const keys = file.indexOf('stss') + 8;
    const numbers = [0, 1, 2, 3].map((index) => file.readUInt32BE(keys + index * 4));
    expect(numbers).toEqual([3, 1, 49, 97]);
  });

  it('creates the same bytes for the same options, and other bytes for another prompt', () => {
    expect(bytesOf(short)).toEqual(bytesOf({ ...short }));
    expect(bytesOf(short)).not.toEqual(bytesOf({ ...short, prompt: 'a tower' }));
    const soundOf = (prompt: string): Buffer => {
      const file = bytesOf({ ...short, width: 2, height: 2, prompt, audio: true });
      return file.subarray(file.length - 4000);
    };
    expect(soundOf('a lighthouse')).not.toEqual(soundOf('a tower'));
  });

  it('adds a sound track only on request', () => {
    expect(bytesOf(short).includes('mp4a')).toBe(false);
    expect(bytesOf({ ...short, audio: true }).includes('mp4a')).toBe(true);
  });

  it.each([
    { width: 0 },
    { width: 1281 },
    { height: -720 },
    { height: 7.5 },
    { width: 80_000, height: 80_000 },
    { seconds: 0 },
    { seconds: Number.NaN },
    { seconds: 601 },
  ])('refuses %j', (wrong) => {
    expect(() => renderVideo({ ...HD, ...wrong })).toThrow(RangeError);
  });
});

describe('videoSize', () => {
  it.each([
    ['720p', '16:9', 1280, 720],
    ['720P', '9:16', 720, 1280],
    ['720p', '1:1', 720, 720],
    ['720p', '21:9', 1680, 720],
    ['720p', '4:5', 720, 900],
    ['768P', '16:9', 1366, 768],
    ['480p', '16:9', 854, 480],
    ['2k', '9:16', 1440, 2560],
    ['4k', '16:9', 3840, 2160],
  ])('returns the size for %s at %s: %i x %i px', (resolution, ratio, width, height) => {
    expect(videoSize(resolution, ratio)).toEqual({ width, height });
  });

  it('treats an unusable ratio as 16:9, and an unusable resolution as 720p', () => {
    for (const ratio of ['adaptive', '', '0:9', '16:0', '1:99', '16/9', '-4:3'])
      expect(videoSize('720p', ratio)).toEqual({ width: 1280, height: 720 });
    for (const resolution of ['', 'best', '0p', '1p', '99999p', '8k'])
      expect(videoSize(resolution, '16:9')).toEqual({ width: 1280, height: 720 });
  });
});

it.each([
  [640, 360, 30],
  [1280, 720, 31],
  [1366, 768, 32],
  [1920, 1080, 40],
  [2560, 1440, 50],
  [3840, 2160, 51],
  [5040, 2160, 60],
])('a video of %i x %i px has the level_idc %i', (width, height, level) => {
  expect(sequenceParameterSet({ width, height, fps: 24 })[3]).toBe(level);
});

it.each([
  ['black', 0, 0, 0, [16, 128, 128]],
  ['red', 0, 1, 0.5, [63, 102, 240]],
  ['green', 120, 1, 0.5, [173, 42, 26]],
  ['blue, with a hue of -120 degrees,', -120, 1, 0.5, [32, 240, 118]],
  ['white, with a lightness above the maximum,', 200, 0.5, 1.4, [235, 128, 128]],
] as const)(
  'the colour %s is converted to the correct BT.709 components',
  (_, hue, saturation, lightness, [y, cb, cr]) => {
    expect(hslColour(hue, saturation, lightness)).toBe(packColour(y, cb, cr));
  },
);

it('the H.264 encoder writes no pixel data for an unchanged picture', () => {
  const still = new Uint32Array(2000).fill(0x408040);
  expect(encodeDifference(still, still, 50, 1).length).toBeLessThan(10);
});

describe.skipIf(!hasFfmpeg)('ffmpeg on a sandbox video', () => {
  const planes = ['-f', 'rawvideo', '-pix_fmt', 'yuv420p'];

  it('decodes every colour of a picture and of the next picture exactly', () => {
    const [columns, rows] = [5, 4];
    const random = seededRandom(1);
    const extremes = [0x000000, 0xffffff, 0xff00ff, 0x00ff00, 0x808080, 0x818180];
    const anyColour = (): number =>
      (random() < 0.3 ? extremes[Math.floor(random() * extremes.length)] : undefined) ??
      Math.floor(random() * 0x1000000);
    // Every pair of brightnesses whose difference has a code of another length.
    const steps = [1, 2, 3, 8, 9, 10, 16, 17, 18, 127].map((step) =>
      Uint32Array.from({ length: 20 }, (_, index) => (100 + (index % 2) * step) * 0x10101),
    );
    const anyPictures = Array.from({ length: 40 }, () => Uint32Array.from({ length: 20 }, anyColour));
    const pictures = [...steps, ...anyPictures];
    const units = pictures.map((picture, index) => {
      const previous = pictures[index - 1];
      return index % 2 === 0 || previous === undefined
        ? encodeIdr(picture, columns, index / 2)
        : encodeDifference(picture, previous, columns, 1);
    });
    const format = { width: columns * 16, height: rows * 16, fps: 24 };
    const stream = [sequenceParameterSet(format), pictureParameterSet(), ...units];
    const separated = Buffer.concat(stream.flatMap((unit) => [Buffer.from([0, 0, 0, 1]), unit]));
    const { complaints, output } = ffmpeg(separated, ['-f', 'h264'], planes);
    expect(complaints).toBe('');
    expect(coloursOf(output, format)).toEqual(pictures.map((picture) => [...picture]));
  });

  it.each([
    { width: 1366, height: 768, seconds: 1 / 24 },
    { width: 34, height: 22, seconds: 3, audio: true },
  ])('decodes a video of any size without a warning: %j', (options) => {
    const video = renderVideo({ ...HD, ...options });
    const { complaints, stream } = ffprobe(video, [
      'profile',
      'width',
      'height',
      'nb_read_frames',
      'duration',
    ]);
    expect(complaints).toBe('');
    expect(stream).toMatchObject({
      profile: 'Constrained Baseline',
      nb_read_frames: `${options.seconds * 24}`,
    });
    expect(stream).toMatchObject({ width: options.width, height: options.height });
    expect(Number(stream.duration)).toBeCloseTo(options.seconds, 5);
  });

  it('shows motion, and a bar at the bottom that is full in the last picture', () => {
    const size = { width: 320, height: 192 };
    const { output } = ffmpeg(renderVideo({ ...HD, ...size, seconds: 2 }), [], planes);
    const pictures = coloursOf(output, size);
    expect(pictures).toHaveLength(48);
    const changes = pictures
      .slice(1)
      .map((picture, index) => picture.filter((colour, block) => colour !== pictures[index]?.[block]).length);
    expect(changes.filter((count) => count > 0).length).toBeGreaterThan(24);
    expect(Math.max(...changes)).toBeLessThan((20 * 12) / 2);
    const bottomRow = (index: number): number => new Set(pictures.at(index)?.slice(-20)).size;
    expect(bottomRow(-1)).toBe(1);
    expect(bottomRow(0)).toBeGreaterThan(5);
  });

  it('decodes sound that ends with the picture without a warning', () => {
    const seconds = 2.5;
    const video = renderVideo({ ...HD, width: 32, height: 32, seconds, audio: true });
    const { complaints, output } = ffmpeg(video, [], ['-vn', '-f', 's16le']);
    expect(complaints).toBe('');
    expect(output.length / 2 / 48_000).toBeLessThanOrEqual(seconds);
    expect(output.length / 2 / 48_000).toBeGreaterThan(seconds - 0.03);
    const samples = new Int16Array(output.buffer, output.byteOffset, Math.floor(output.length / 2));
    expect(samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0)).toBeGreaterThan(1000);
  });
});

/** Returns the colour of each block of each picture. Every block has one colour. */
function coloursOf(planes: Buffer, { width, height }: { width: number; height: number }): number[][] {
  const [columns, rows, luma] = [width / 16, height / 16, width * height];
  const bytes = (luma * 3) / 2;
  return Array.from({ length: planes.length / bytes }, (_, frame) => {
    const at = (index: number): number => planes[frame * bytes + index] ?? -1;
    return Array.from({ length: columns * rows }, (_, block) => {
      const [row, column] = [Math.floor(block / columns), block % columns];
      const chroma = luma + row * 8 * (width / 2) + column * 8;
      return packColour(at((row * 16 + 15) * width + column * 16 + 15), at(chroma), at(chroma + luma / 4));
    });
  });
}
