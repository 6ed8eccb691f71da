import {
  encodeDifference,
  encodeIdr,
  macroblockSize,
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

const keyIntervalSeconds = 2;
const audioRate = 48_000;
/**
 * The maximum duration, in seconds. The limit bounds memory, because all pictures are in memory at once. No model
 * produces videos of this length.
 */
const maxSeconds = 600;

/**
 * Returns a playable MP4 (H.264 Constrained Baseline, and MP3 if `audio`) of exactly `seconds * fps` pictures, at least
 * one. The same options produce the same bytes. Different prompts produce different colours, motion and sound. Throws
 * RangeError for a size that is odd, not positive or beyond every H.264 level. Also throws RangeError for a duration
 * that is not positive or exceeds ten minutes.
 */
export function renderVideo(options: VideoOptions): Uint8Array {
  const { prompt, seconds, width, height, fps = 24, audio = false } = options;
  if (!(seconds > 0 && seconds <= maxSeconds)) throw new RangeError(`Not a duration: ${seconds} s`);
  if (!isEvenSide(width) || !isEvenSide(height)) throw new RangeError(`Not a video size: ${width}x${height}`);
  const frames = Math.max(1, Math.round(seconds * fps));
  const columns = Math.ceil(width / macroblockSize);
  const rows = Math.ceil(height / macroblockSize);
  const format = { width, height, fps };
  return muxMp4({
    ...format,
    sequenceParameterSet: sequenceParameterSet(format),
    pictureParameterSet: pictureParameterSet(),
    samples: encode(sceneFor({ prompt, columns, rows, frames, fps }), frames, keyIntervalSeconds * fps),
    audio: audio ? soundOf(prompt, frames / fps) : undefined,
  });
}

/** Returns a video's sound. No audio frame extends beyond the last picture. */
function soundOf(prompt: string, seconds: number): AudioTrack {
  const frameSamples = mp3FrameSamples(audioRate);
  const frames = [...mp3Frames(tuneOf(seededRandom(hashText(prompt)), seconds), audioRate)];
  const wholeFrames = Math.floor((seconds * audioRate) / frameSamples);
  return { sampleRate: audioRate, frameSamples, frames: frames.slice(0, wholeFrames) };
}

function isEvenSide(pixels: number): boolean {
  return Number.isInteger(pixels / 2) && pixels > 0;
}

function encode(scene: Scene, frames: number, keyInterval: number): VideoSample[] {
  let previous: Uint32Array = new Uint32Array();
  return Array.from({ length: frames }, (_, frame) => {
    const picture = scene.paint(frame);
    const distance = frame % keyInterval;
    const isKey = distance === 0;
    const data = isKey
      ? encodeIdr(picture, scene.columns, frame / keyInterval)
      : encodeDifference(picture, previous, scene.columns, distance);
    previous = picture;
    return { data, isKey };
  });
}

/** A size in even numbers of pixels. */
interface VideoSize {
  width: number;
  height: number;
}

const shortSidesOfK: Readonly<Record<string, number>> = { '2k': 1440, '4k': 2160 };
const defaultShortSide = 720;
const defaultRatio = [16, 9] as const;
const maxShortSide = 2160;
/** The maximum aspect ratio. A greater ratio is probably a typing error, and would result in a useless picture size. */
const maxSteepness = 4;

/**
 * Returns the size for a resolution and an aspect ratio, spelled as in requests (specification 2.1, 2.3, 2.5). `720p`,
 * `768P`, `2K` and so on, in either letter case, specify the short side (2K is 1440), and `W:H` specifies the ratio. An
 * unknown resolution is treated as 720p. An unknown ratio, or `adaptive`, is treated as 16:9.
 */
export function videoSize(resolution: string, aspectRatio: string): VideoSize {
  const side = shortSide(resolution.trim().toLowerCase());
  const [horizontal, vertical] = ratioOf(aspectRatio.trim());
  return horizontal >= vertical
    ? { width: roundToEven((side * horizontal) / vertical), height: roundToEven(side) }
    : { width: roundToEven(side), height: roundToEven((side * vertical) / horizontal) };
}

function shortSide(resolution: string): number {
  const lines = shortSidesOfK[resolution] ?? Number(/^(\d+)p$/.exec(resolution)?.[1]);
  return lines >= 2 && lines <= maxShortSide ? lines : defaultShortSide;
}

function ratioOf(aspectRatio: string): readonly [number, number] {
  const match = /^(\d+):(\d+)$/.exec(aspectRatio);
  const [horizontal, vertical] = [Number(match?.[1]), Number(match?.[2])];
  const steepness = Math.max(horizontal / vertical, vertical / horizontal);
  return steepness <= maxSteepness ? [horizontal, vertical] : defaultRatio;
}

function roundToEven(pixels: number): number {
  return 2 * Math.round(pixels / 2);
}
