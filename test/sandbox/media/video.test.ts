import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { renderVideo } from '../../../src/sandbox/media/video.ts';
import type { VideoOptions } from '../../../src/sandbox/media/video.ts';
import { ffmpeg, ffprobe, hasFfmpeg } from './ffmpeg.ts';
import { decodeSlice, readParameters } from './read-h264.ts';
import type { Parameters, Picture, Slice } from './read-h264.ts';
import { readMp3 } from './read-mp3.ts';
import { readMp4 } from './read-mp4.ts';
import type { ReadMp4 } from './read-mp4.ts';

const HD: VideoOptions = { prompt: 'a lighthouse at dusk', seconds: 5, width: 1280, height: 720 };

function decode(options: VideoOptions): { file: ReadMp4; parameters: Parameters; slices: Slice[] } {
  const file = readMp4(renderVideo(options));
  const parameters = readParameters(file.sequenceParameterSet, file.pictureParameterSet);
  let picture: Picture = [];
  const slices = file.samples.map(({ data }) => {
    const slice = decodeSlice(data, parameters, picture);
    picture = slice.picture;
    return slice;
  });
  return { file, parameters, slices };
}

describe('renderVideo', () => {
  it('creates a file of the requested duration and size that can be played while it arrives', () => {
    const file = readMp4(renderVideo(HD));
    expect(file.topLevel).toEqual(['ftyp', 'moov', 'mdat']);
    expect(file.brands).toEqual(['isom', 'isom', 'iso2', 'avc1', 'mp41']);
    expect(file).toMatchObject({ width: 1280, height: 720, seconds: 5, movieSeconds: 5 });
    expect(file).toMatchObject({ codedWidth: 1280, codedHeight: 720 });
    expect(file.samples).toHaveLength(120);
    expect(file.timescale / file.sampleTicks).toBe(24);
  });

  it('creates Constrained Baseline video of the requested size', () => {
    const { parameters } = decode({ ...HD, seconds: 0.1 });
    expect(parameters).toMatchObject({ profile: 66, constraints: 0xc0, width: 1280, height: 720 });
    expect(parameters.picturesPerSecond).toBe(24);
  });

  it.each([
    [640, 360, 30],
    [1280, 720, 31],
    [1366, 768, 32],
    [1920, 1080, 40],
    [2560, 1440, 50],
    [3840, 2160, 51],
    [5040, 2160, 60],
  ])('encodes %i x %i px with level_idc %i', (width, height, level) => {
    expect(decode({ ...HD, seconds: 1 / 24, width, height }).parameters).toMatchObject({
      width,
      height,
      level,
    });
  });

  it('inserts a key frame every two seconds, so a player can seek', () => {
    const { file, slices } = decode(HD);
    const keys = slices.flatMap(({ isIdr }, index) => (isIdr ? [index] : []));
    expect(keys).toEqual([0, 48, 96]);
    expect(file.samples.flatMap(({ key }, index) => (key ? [index] : []))).toEqual(keys);
    expect(keys.map((index) => slices[index]?.idrId)).toEqual([0, 1, 0]);
    expect(slices.map(({ frameNum }) => frameNum)).toEqual(slices.map((_, index) => (index % 48) % 16));
  });

  it('shows motion: most pictures change a part of the image, and none changes all of it', () => {
    const changed = decode(HD).slices.filter(({ isIdr }) => !isIdr);
    expect(changed.filter(({ coded }) => coded > 0).length).toBeGreaterThan(100);
    expect(Math.max(...changed.map(({ coded }) => coded))).toBeLessThan((80 * 45) / 4);
  });

  it('shows a bar at the bottom that is full in the last picture', () => {
    const { slices, parameters } = decode({ ...HD, seconds: 2 });
    const bottomRow = (index: number) =>
      slices.at(index)?.picture.slice(-parameters.columns).map(String) ?? [];
    expect(new Set(bottomRow(-1)).size).toBe(1);
    expect(new Set(bottomRow(0)).size).toBeGreaterThan(10);
  });

  it('creates the same bytes for the same options, and different pictures for a different prompt', () => {
    expect(renderVideo(HD)).toEqual(renderVideo({ ...HD }));
    const first = (prompt: string) =>
      decode({ ...HD, prompt, seconds: 0.1 }).slices[0]?.picture.map(String) ?? [];
    const [one, other] = [first('a lighthouse at dusk'), first('a lighthouse at dawn')];
    const differing = one.filter((colour, index) => colour !== other[index]).length;
    expect(differing / one.length).toBeGreaterThan(0.9);
  });

  it('adds sound only on request, in the form of MP3 that ends with the picture', () => {
    expect(readMp4(renderVideo(HD)).audio).toBeUndefined();
    const { audio, samples, seconds, movieSeconds } = readMp4(
      renderVideo({ ...HD, seconds: 3.5, audio: true }),
    );
    expect({ seconds, movieSeconds, pictures: samples.length }).toEqual({
      seconds: 3.5,
      movieSeconds: 3.5,
      pictures: 84,
    });
    expect(audio).toMatchObject({ channels: 1, sampleRate: 48_000 });
    expect(audio?.seconds).toBeLessThanOrEqual(3.5);
    expect(audio?.seconds).toBeGreaterThan(3.5 - 1152 / 48_000);
    const frames = readMp3(Buffer.concat(audio?.frames ?? []));
    expect(frames).toHaveLength(audio?.frames.length ?? 0);
    expect(frames.flatMap(({ granules }) => granules).every(({ length }) => length === 1)).toBe(true);
  });

  it('plays a different tune for a different prompt', () => {
    const tune = (prompt: string): Buffer =>
      Buffer.concat(readMp4(renderVideo({ ...HD, prompt, seconds: 2, audio: true })).audio?.frames ?? []);
    expect(tune('a lighthouse').equals(tune('a lighthouse'))).toBe(true);
    expect(tune('a lighthouse').equals(tune('a tower'))).toBe(false);
  });

  it('creates a small file', () => {
    expect(renderVideo(HD).length).toBeLessThan(200_000);
    expect(renderVideo({ ...HD, seconds: 15, width: 2560, height: 1440 }).length).toBeLessThan(1_000_000);
  });

  it('creates a decodable file for any prompt, any even width and height, and any number of pictures', () => {
    const side = fc.integer({ min: 1, max: 200 }).map((half) => half * 2);
    const options = fc.record({
      prompt: fc.string({ unit: 'grapheme' }),
      seconds: fc.integer({ min: 1, max: 60 }).map((frames) => frames / 24),
      width: side,
      height: side,
    });
    const property = fc.property(options, (given) => {
      const { file, parameters, slices } = decode(given);
      expect(parameters).toMatchObject({ width: given.width, height: given.height });
      expect(slices).toHaveLength(Math.round(given.seconds * 24));
      expect(file.seconds).toBeCloseTo(given.seconds, 9);
    });
    fc.assert(property, { numRuns: 60 });
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

describe.skipIf(!hasFfmpeg)('ffmpeg on a sandbox video', () => {
  it.each([
    { width: 1366, height: 768, seconds: 1 },
    { width: 34, height: 22, seconds: 3 },
  ])('probes and decodes the video without a warning: %j', (size) => {
    const video = renderVideo({ ...HD, ...size });
    const fields = [
      'codec_name',
      'profile',
      'width',
      'height',
      'pix_fmt',
      'r_frame_rate',
      'nb_read_frames',
      'duration',
    ];
    const { complaints, stream } = ffprobe(video, fields);
    expect(complaints).toBe('');
    expect(stream).toMatchObject({ codec_name: 'h264', profile: 'Constrained Baseline', pix_fmt: 'yuv420p' });
    expect(stream).toMatchObject({ width: size.width, height: size.height, r_frame_rate: '24/1' });
    expect(stream.nb_read_frames).toBe(String(size.seconds * 24));
    expect(Number(stream.duration)).toBe(size.seconds);
    expect(ffmpeg(video, [], ['-f', 'null']).complaints).toBe('');
  });

  it.each([1 / 24, 2.5])('decodes %d s of sound without a warning', (seconds) => {
    const video = renderVideo({ ...HD, seconds, audio: true });
    const { complaints, output } = ffmpeg(video, [], ['-vn', '-f', 's16le']);
    expect(complaints).toBe('');
    expect(Math.abs(output.length / 2 / 48_000 - seconds)).toBeLessThan(0.03);
    const samples = new Int16Array(output.buffer, output.byteOffset, Math.floor(output.length / 2));
    expect(samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0)).toBeGreaterThan(1000);
    expect(ffmpeg(video, [], ['-f', 'null']).complaints).toBe('');
  });

  it("shows the same colours as the tests' decoder, to the last picture", () => {
    const options = { ...HD, width: 160, height: 96, seconds: 3 };
    const { slices } = decode(options);
    const { output } = ffmpeg(renderVideo(options), [], ['-f', 'rawvideo', '-pix_fmt', 'yuv420p']);
    const pictureBytes = (160 * 96 * 3) / 2;
    const lumaCorners = (frame: number): number[] =>
      Array.from({ length: 60 }, (_, block) => {
        const [row, column] = [Math.floor(block / 10) * 16, (block % 10) * 16];
        return output[frame * pictureBytes + (row + 15) * 160 + column + 15] ?? -1;
      });
    expect(output.length).toBe(72 * pictureBytes);
    slices.forEach(({ picture }, frame) => {
      expect(lumaCorners(frame)).toEqual(picture.map(([luma]) => luma));
    });
  });
});
