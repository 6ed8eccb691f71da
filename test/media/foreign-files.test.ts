import { execFile, execFileSync } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { z } from 'zod';
import type { Delivered } from '../../src/job.ts';
import { measureMp4 } from '../../src/media/measure-mp4.ts';
import { hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { freshFolder } from '../support/servers.ts';

const run = promisify(execFile);

// The number of files to measure. `npm run foreign` measures 1,000.
const count = Number(process.env['FOREIGN_FILES'] ?? 2);
const [atOnce, maxSeconds] = [2, 4];

type Pick = <T>(...values: T[]) => T;

// Returns a function that makes the same choices for the same seed (mulberry32).
function picker(seed: number): Pick {
  let state = seed;
  return (...values) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    const value = values[((mixed ^ (mixed >>> 14)) >>> 0) % values.length];
    if (value === undefined) throw new Error('no values');
    return value;
  };
}

const codecs = {
  mpeg4: ['-c:v', 'mpeg4'],
  libx264: ['-c:v', 'libx264', '-preset', 'ultrafast', '-bf', '2'],
  libx265: ['-c:v', 'libx265', '-preset', 'ultrafast', '-x265-params', 'log-level=none'],
  libsvtav1: ['-c:v', 'libsvtav1', '-preset', '12'],
  'libvpx-vp9': ['-c:v', 'libvpx-vp9', '-deadline', 'realtime', '-cpu-used', '8'],
};
const encoders = hasFfmpeg ? execFileSync('ffmpeg', ['-v', 'quiet', '-encoders'], { encoding: 'utf8' }) : '';
const available = Object.keys(codecs).filter((name) =>
  encoders.includes(` ${name} `),
) as (keyof typeof codecs)[];

interface Recipe {
  name: string;
  encode: string[];
  /**
   * The position, in seconds, at which a second ffmpeg run cuts the file without re-encoding it. Undefined if there is
   * no second run.
   */
  cut?: number;
}

function recipe(seed: number, folder: string): Recipe {
  const pick = picker(seed);
  const codec = pick('mpeg4', ...available, ...available);
  const sides = [64, 66, 96, 128, 162, 240];
  const size = `${pick(...sides)}x${pick(...sides)}`;
  const rate = pick(
    '2',
    '12',
    '15',
    '24',
    '25',
    '30',
    '50',
    '60',
    '120',
    '24000/1001',
    '30000/1001',
    '60000/1001',
  );
  const seconds = pick(0.2, 0.5, 1, 1.37, 2, 3, maxSeconds);
  const container = ['libsvtav1', 'libvpx-vp9'].includes(codec) ? 'mp4' : pick('mp4', 'mp4', 'mov');
  const sound = pick('', '', 'same', 'longer', 'shorter');
  const soundSeconds = seconds * { '': 0, same: 1, longer: 1.4, shorter: 0.6 }[sound];
  const filters = [
    pick([], [], [`setsar=${pick('4/3', '3/2', '8/9')}`]),
    // A variable frame rate: drops or moves frames.
    pick([], [], [], [`select='not(eq(mod(n,7),3))'`], [`setpts='PTS+0.4*sin(N)/FRAME_RATE/TB'`]),
  ].flat();
  const index = pick(
    [[]],
    [[]],
    [['-movflags', '+faststart']],
    [
      ['-movflags', 'frag_keyframe+empty_moov'],
      ['-g', pick('4', '12')],
    ],
    [
      ['-movflags', 'frag_keyframe'],
      ['-g', '6'],
    ],
    [['-movflags', 'frag_every_frame+empty_moov+default_base_moof']],
    [['-movflags', 'empty_moov+delay_moov', '-frag_duration', '300000']],
    [['-movflags', 'cmaf+frag_keyframe+delay_moov']],
    [['-movflags', 'dash+frag_keyframe+global_sidx']],
    [['-movflags', 'frag_keyframe+empty_moov+separate_moof+omit_tfhd_offset']],
    [['-movflags', 'isml+frag_keyframe']],
    [['-movflags', 'frag_keyframe+skip_sidx+skip_trailer']],
    [['-movflags', 'negative_cts_offsets']],
  ).flat();
  const more = [
    pick([], [], ['-metadata:s:v:0', `rotate=${pick('90', '180', '270')}`]),
    pick([], [], ['-output_ts_offset', '0.5'], ['-use_editlist', '0']),
    pick([], ['-video_track_timescale', pick('600', '90000', '1000')]),
    pick([], [], ['-movie_timescale', pick('600', '48000')]),
    pick([], [], [], ['-timecode', '01:00:00:00']),
  ].flat();
  const name = join(folder, `${seed}.${container}`);
  const encode = [
    ...['-f', 'lavfi', '-i', `testsrc=s=${size}:r=${rate}:d=${seconds}`],
    ...(sound === '' ? [] : ['-f', 'lavfi', '-i', `sine=d=${soundSeconds}`, '-c:a', 'aac']),
    ...(sound === '' ? [] : pick([], ['-map', '1:a', '-map', '0:v'])),
    ...codecs[codec],
    ...['-pix_fmt', 'yuv420p', '-vsync', 'vfr', ...(filters.length > 0 ? ['-vf', filters.join(',')] : [])],
    ...[...index, ...more],
  ];
  const isCut = pick(false, false, false, true) && seconds >= 1;
  return { name, encode, ...(isCut && { cut: seconds / 2 }) };
}

const probed = z.object({
  streams: z.array(
    z.object({
      codec_type: z.string(),
      width: z.number().optional(),
      height: z.number().optional(),
      sample_aspect_ratio: z.string().optional(),
      avg_frame_rate: z.string(),
      side_data_list: z.array(z.object({ rotation: z.number().optional() })).optional(),
    }),
  ),
  packets: z.array(
    z.object({ pts_time: z.string(), duration_time: z.string().optional(), flags: z.string() }),
  ),
});

type Packets = z.infer<typeof probed>['packets'];

function startsOf(packets: Packets): number[] {
  return packets.map(({ pts_time }) => Number(pts_time)).sort((one, other) => one - other);
}

function lengthOf(packets: Packets): number {
  const ends = packets.map(({ pts_time, duration_time = 0 }) => Number(pts_time) + Number(duration_time));
  return Math.max(...ends) - Math.min(...startsOf(packets));
}

const quotient = (text: string): number => {
  const [above = NaN, below = 1] = text.split(/[/:]/).map(Number);
  return above / below;
};

interface Probed extends Delivered {
  /** The duration of the longest frame, in seconds. */
  frame: number;
  /**
   * The average frame rate: the number of frames, divided by the time from the start of the first frame to the end of
   * the last frame.
   */
  average: number;
}

/** Returns the properties that ffprobe reports for a file. */
async function probe(path: string): Promise<Probed> {
  const shown = 'stream:stream_side_data=rotation:packet=pts_time,duration_time,flags';
  const ask = ['-v', 'error', '-show_entries', shown, '-of', 'json'];
  const [all, pictures] = await Promise.all([
    run('ffprobe', [...ask, '-read_intervals', '%+#1', path]),
    run('ffprobe', [...ask, '-select_streams', 'v:0', path]),
  ]);
  const { streams } = probed.parse(JSON.parse(all.stdout));
  // The duration that ffprobe reports for a stream does not include gaps between frames. Flag D marks a frame that the
  // edit list hides.
  const { packets } = probed.parse(JSON.parse(pictures.stdout));
  const shownPackets = packets.filter(({ flags }) => !flags.includes('D'));
  const starts = startsOf(shownPackets);
  const video = streams.find(({ codec_type }) => codec_type === 'video');
  if (video === undefined) throw new Error(`no picture in ${path}`);
  const { width = 0, height = 0, sample_aspect_ratio: pixels } = video;
  const across = width * (pixels === undefined || pixels === '0:1' ? 1 : quotient(pixels));
  const rotation = video.side_data_list?.find((each) => each.rotation !== undefined)?.rotation ?? 0;
  const isTurned = Math.abs(rotation) % 180 === 90;
  const gaps = starts.slice(1).map((start, index) => start - (starts[index] ?? 0));
  return {
    frame: Math.max(...gaps, 1 / quotient(video.avg_frame_rate)),
    average: packets.length / lengthOf(packets),
    duration: lengthOf(shownPackets),
    width: isTurned ? height : across,
    height: isTurned ? across : height,
    fps: quotient(video.avg_frame_rate),
    audio: streams.some(({ codec_type }) => codec_type === 'audio'),
  };
}

function measured(path: string): Delivered | undefined {
  const file = openSync(path, 'r');
  try {
    return measureMp4(file);
  } finally {
    closeSync(file);
  }
}

/** Returns the differences between mgw's measurement of a file and ffprobe's result. */
function differences(is: Delivered | undefined, told: Probed, isIndexed: boolean): string[] {
  const { duration = 0, width = 0, height = 0, fps = 0, audio } = is ?? {};
  // For fragments with an index, ffprobe averages the fragments that it has read. The times in ffprobe's output are
  // rounded to milliseconds.
  const isAverage = isIndexed && Math.abs(fps / told.average - 1) <= 0.002 / duration;
  const off = (value: number, from: number | undefined): number => Math.abs(value - (from ?? NaN));
  return [
    ...(off(duration, told.duration) <= told.frame + 0.001 ? [] : ['duration']),
    ...(off(width, told.width) <= 1 && off(height, told.height) <= 1 ? [] : ['size']),
    ...(isAverage || off(fps, told.fps) <= 0.01 ? [] : ['fps']),
    ...(audio === told.audio ? [] : ['audio']),
  ];
}

it.runIf(hasFfmpeg)(
  `mgw and ffprobe measure the same values in ${count} files made by ffmpeg`,
  async () => {
    const folder = freshFolder();
    const failures: object[] = [];
    const seeds = Array.from({ length: count }, (_, seed) => seed);
    const work = async (): Promise<void> => {
      for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) {
        const { name, encode, cut } = recipe(seed, folder);
        const base = ['-nostdin', '-v', 'error', '-y'];
        await run('ffmpeg', [...base, ...encode, name]);
        const path = cut === undefined ? name : join(folder, `cut-${basename(name)}`);
        if (cut !== undefined)
          await run('ffmpeg', [...base, '-ss', '0.31', '-i', name, '-t', String(cut), '-c', 'copy', path]);
        const [is, told] = [measured(path), await probe(path)];
        const wrong = differences(is, told, encode.join(' ').includes('dash+'));
        if (wrong.length > 0) failures.push({ seed, wrong, is, told, cut, encode: encode.join(' ') });
        else await Promise.all([name, path].map((each) => rm(each, { force: true })));
      }
    };
    await Promise.all(Array.from({ length: atOnce }, work));
    expect(failures).toEqual([]);
  },
  3_600_000,
);
