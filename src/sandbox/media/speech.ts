import { melodyOf } from './melody.ts';
import type { Melody } from './melody.ts';
import { mp3Fragments } from './mp3.ts';
import { oggOpusFragments } from './ogg-opus.ts';
import { pcmFragments, wavFragments } from './pcm.ts';

type Fragments = (melody: Melody, sampleRate: number) => Generator<Uint8Array>;

const FORMATS = {
  mp3: mp3Fragments,
  pcm: pcmFragments,
  wav: wavFragments,
  ogg_opus: oggOpusFragments,
} satisfies Record<string, Fragments>;

/** A container and coding of speech, as `audio_params.format` spells it. */
export type SpeechFormat = keyof typeof FORMATS;

/** What is spoken, and how it is to be written down; the sample rate in hertz. */
export interface SpeechOptions {
  text: string;
  format: SpeechFormat;
  sampleRate: number;
}

/** Whether a word from a request names a format that can be rendered. */
export function isSpeechFormat(format: string): format is SpeechFormat {
  return Object.hasOwn(FORMATS, format);
}

/**
 * Soft tones in place of speech, 60 ms for each character and at least 0.5 s, in fragments of about 0.4 s: one at
 * a time, so that hours of it need no more memory than a moment. The same options give the same bytes. `pcm` is
 * signed 16-bit little-endian mono; every fragment of `wav` carries a header of its own, as the real service does
 * it; those of `mp3` and `ogg_opus` are whole frames and pages. Throws RangeError, at the first fragment, for a
 * sample rate that is not a positive integer or that MP3 does not have.
 */
export function* speechChunks({ text, format, sampleRate }: SpeechOptions): Generator<Uint8Array> {
  if (!Number.isInteger(sampleRate) || sampleRate <= 0)
    throw new RangeError(`Not a sample rate: ${sampleRate}`);
  yield* FORMATS[format](melodyOf(text), sampleRate);
}

/** All fragments of {@link speechChunks}, joined as they come. */
export function renderSpeech(options: SpeechOptions): Uint8Array {
  return Buffer.concat([...speechChunks(options)]);
}
