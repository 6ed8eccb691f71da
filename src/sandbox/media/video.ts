import {
  encodeDifference,
  encodeIdr,
  MACROBLOCK,
  pictureParameterSet,
  sequenceParameterSet,
} from './h264.ts';
import { tuneOf, hashText, type Scene, sceneFor, seededRandom } from './scene.ts';
import { mp3Frames, mp3FrameSamples } from './mp3.ts';
import { type AudioTrack, type VideoSample, muxMp4 } from './mp4.ts';

/** A video's content and size. `seconds` may be a fraction; `width` and `height` are even numbers of pixels. */
export interface VideoOptions {
  prompt: string;
  seconds: number;
  width: number;
  height: number;
  fps?: 24;
  /** Whether the video has sound. */
  audio?: boolean;
}

const SECONDS_BETWEEN_KEYS = 2;
const AUDIO_RATE = 48_000;
/**
 * The maximum duration, in seconds. The limit bounds memory, because all pictures are in memory at once. No model
 * produces videos of this length.
 */
const LONGEST_SECONDS = 600;

/**
 * Returns a playable MP4 (H.264 Constrained Baseline, and MP3 if `audio`) of exactly `seconds * fps` pictures, at least
 * one. The same options produce the same bytes. Different prompts produce different colours, motion and sound. Throws
 * RangeError for a size that is odd, not positive or beyond every H.264 level. Also throws RangeError for a duration
 * that is not positive or exceeds ten minutes.
 */
export function renderVideo(options: VideoOptions): Uint8Array {
  const { prompt, seconds, width, height, fps = 24, audio = false } = options;
  if (!(seconds > 0 && seconds <= LONGEST_SECONDS)) throw new RangeError(`Not a duration: ${seconds} s`);
  if (!isEvenSide(width) || !isEvenSide(height)) throw new RangeError(`Not a video size: ${width}x${height}`);
  const frames = Math.max(1, Math.round(seconds * fps));
  const columns = Math.ceil(width / MACROBLOCK);
  const rows = Math.ceil(height / MACROBLOCK);
  const format = { width, height, fps };
  return muxMp4({
    ...format,
    sequenceParameterSet: sequenceParameterSet(format),
    pictureParameterSet: pictureParameterSet(),
    samples: encode(sceneFor({ prompt, columns, rows, frames, fps }), frames, SECONDS_BETWEEN_KEYS * fps),
    audio: audio ? soundOf(prompt, frames / fps) : undefined,
  });
}

/** Returns a video's sound. No audio frame extends beyond the last picture. */
function soundOf(prompt: string, seconds: number): AudioTrack {
  const frameSamples = mp3FrameSamples(AUDIO_RATE);
  const frames = [...mp3Frames(tuneOf(seededRandom(hashText(prompt)), seconds), AUDIO_RATE)];
  const whole = Math.floor((seconds * AUDIO_RATE) / frameSamples);
  return { sampleRate: AUDIO_RATE, frameSamples, frames: frames.slice(0, whole) };
}

function isEvenSide(pixels: number): boolean {
  return Number.isInteger(pixels / 2) && pixels > 0;
}

function encode(scene: Scene, frames: number, keyInterval: number): VideoSample[] {
  let previous: Uint32Array = new Uint32Array();
  return Array.from({ length: frames }, (_, frame) => {
    const picture = scene.paint(frame);
    const distance = frame % keyInterval;
    const key = distance === 0;
    const data = key
      ? encodeIdr(picture, scene.columns, frame / keyInterval)
      : encodeDifference(picture, previous, scene.columns, distance);
    previous = picture;
    return { data, key };
  });
}

/** A size in even numbers of pixels. */
interface VideoSize {
  width: number;
  height: number;
}

const SHORT_SIDES_OF_K: Readonly<Record<string, number>> = { '2k': 1440, '4k': 2160 };
const DEFAULT_SHORT_SIDE = 720;
const DEFAULT_RATIO = [16, 9] as const;
const LARGEST_SHORT_SIDE = 2160;
/** The maximum aspect ratio. A greater ratio is probably a typing error, and would result in a useless picture size. */
const STEEPEST_RATIO = 4;

/**
 * Returns the size for a resolution and an aspect ratio, spelled as in requests (specification 2.1, 2.3, 2.5). `720p`,
 * `768P`, `2K` and so on, in either letter case, specify the short side (2K is 1440), and `W:H` specifies the ratio. An
 * unknown resolution is treated as 720p. An unknown ratio, or `adaptive`, is treated as 16:9.
 */
export function videoSize(resolution: string, aspectRatio: string): VideoSize {
  const short = shortSide(resolution.trim().toLowerCase());
  const [across, down] = ratioOf(aspectRatio.trim());
  return across >= down
    ? { width: even((short * across) / down), height: even(short) }
    : { width: even(short), height: even((short * down) / across) };
}

function shortSide(resolution: string): number {
  const lines = SHORT_SIDES_OF_K[resolution] ?? Number(/^(\d+)p$/.exec(resolution)?.[1]);
  return lines >= 2 && lines <= LARGEST_SHORT_SIDE ? lines : DEFAULT_SHORT_SIDE;
}

function ratioOf(aspectRatio: string): readonly [number, number] {
  const match = /^(\d+):(\d+)$/.exec(aspectRatio);
  const [across, down] = [Number(match?.[1]), Number(match?.[2])];
  const steepness = Math.max(across / down, down / across);
  return steepness <= STEEPEST_RATIO ? [across, down] : DEFAULT_RATIO;
}

function even(pixels: number): number {
  return 2 * Math.round(pixels / 2);
}
