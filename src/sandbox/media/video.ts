import {
  encodeDifference,
  encodeIdr,
  MACROBLOCK,
  pictureParameterSet,
  sequenceParameterSet,
} from './h264.ts';
import { tuneOf } from './melody.ts';
import { mp3Frames, mp3FrameSamples } from './mp3.ts';
import type { AudioTrack, VideoSample } from './mp4.ts';
import { muxMp4 } from './mp4.ts';
import { hashText, type Scene, sceneFor, seededRandom } from './scene.ts';

/** What a video shows and how large it is: `seconds` may be a fraction, sizes are even numbers of pixels. */
export interface VideoOptions {
  prompt: string;
  seconds: number;
  width: number;
  height: number;
  fps?: 24;
  /** Whether it has sound. */
  audio?: boolean;
}

const SECONDS_BETWEEN_KEYS = 2;
const AUDIO_RATE = 48_000;
/** All pictures are held in memory at once; no model makes films. */
const LONGEST_SECONDS = 600;

/**
 * A playable MP4 (H.264 Constrained Baseline, with `audio` MP3) of exactly `seconds * fps` pictures, at least one. The
 * same options give the same bytes; another prompt gives other colours, another motion and another tune. Throws
 * RangeError for a size that is odd, not positive or beyond every H.264 level, and for a duration that is not positive or
 * above ten minutes.
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

/** No frame sounds beyond the last picture. */
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
