import { type Melody, melodyOf } from './scene.ts';
import { mp3Fragments } from './mp3.ts';
import { oggOpusFragments } from './ogg-opus.ts';

type Fragments = (melody: Melody, sampleRate: number) => Generator<Uint8Array>;

const fragmentsByFormat = {
  mp3: mp3Fragments,
  pcm: pcmFragments,
  wav: wavFragments,
  ogg_opus: oggOpusFragments,
} satisfies Record<string, Fragments>;

/** A speech format, spelled as in `audio_params.format`. */
export type SpeechFormat = keyof typeof fragmentsByFormat;

/** The text to speak, the format, and the sample rate in hertz. */
export interface SpeechOptions {
  text: string;
  format: SpeechFormat;
  sampleRate: number;
}

/** Whether the sandbox can render a requested format. */
export function isSpeechFormat(format: string): format is SpeechFormat {
  return Object.hasOwn(fragmentsByFormat, format);
}

/**
 * Yields soft tones in place of speech, 60 ms for each character and at least 0.5 s, in fragments of about 0.4 s.
 * Renders one fragment at a time, so that hours of speech need little memory. The same options produce the same bytes.
 * `pcm` is signed 16-bit little-endian mono. Every `wav` fragment has its own header, as in the real service. `mp3` and
 * `ogg_opus` fragments are whole frames and pages. Throws RangeError, at the first fragment, for a sample rate that is
 * not a positive integer or that MP3 does not support.
 */
export function* speechChunks({ text, format, sampleRate }: SpeechOptions): Generator<Uint8Array> {
  if (!Number.isInteger(sampleRate) || sampleRate <= 0)
    throw new RangeError(`Not a sample rate: ${sampleRate}`);
  yield* fragmentsByFormat[format](melodyOf(text), sampleRate);
}

/** Returns all fragments of {@link speechChunks}, concatenated unchanged. */
export function renderSpeech(options: SpeechOptions): Uint8Array {
  return Buffer.concat([...speechChunks(options)]);
}

const peakAmplitude = 0.15 * 0x7fff;
/** How long a tone takes to fade in or out, in seconds. Fading avoids clicks. */
const fadeSeconds = 0.008;
const fragmentSeconds = 0.4;
const wavHeaderBytes = 44;

/** Yields a melody as signed 16-bit little-endian mono samples, `sampleRate` per second, in fragments of 0.4 s. */
function* pcmFragments(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  const total = Math.round(melody.seconds * sampleRate);
  const perFragment = Math.max(1, Math.round(fragmentSeconds * sampleRate));
  const nextSample = oscillator(melody, sampleRate);
  for (let start = 0; start < total; start += perFragment) {
    const count = Math.min(perFragment, total - start);
    const view = new DataView(new ArrayBuffer(count * 2));
    for (let index = 0; index < count; index++) view.setInt16(index * 2, nextSample(start + index), true);
    yield new Uint8Array(view.buffer);
  }
}

/** Returns a function that computes the samples of a wave whose pitch changes but whose phase never jumps. */
function oscillator(melody: Melody, sampleRate: number): (index: number) => number {
  const step = 1 / (fadeSeconds * sampleRate);
  let phase = 0;
  let pitch = 0;
  let loudness = 0;
  return (index) => {
    const nextPitch = melody.pitchAt(index / sampleRate);
    if (nextPitch > 0) pitch = nextPitch;
    loudness = nextPitch > 0 ? Math.min(1, loudness + step) : Math.max(0, loudness - step);
    phase += pitch / sampleRate;
    if (phase >= 1) phase -= Math.floor(phase);
    return Math.round(peakAmplitude * loudness * Math.sin(2 * Math.PI * phase));
  };
}

/** Like {@link pcmFragments}, but each fragment is a complete WAV file. Their concatenation is not a valid file. */
function* wavFragments(melody: Melody, sampleRate: number): Generator<Uint8Array> {
  for (const samples of pcmFragments(melody, sampleRate)) {
    const file = new Uint8Array(wavHeaderBytes + samples.length);
    file.set(wavHeader(samples.length, sampleRate));
    file.set(samples, wavHeaderBytes);
    yield file;
  }
}

function wavHeader(dataBytes: number, sampleRate: number): Uint8Array {
  const header = Buffer.alloc(wavHeaderBytes);
  header.write('RIFF', 0);
  header.writeUInt32LE(wavHeaderBytes - 8 + dataBytes, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16); // size of the format fields that follow, in bytes
  header.writeUInt16LE(1, 20); // PCM
  header.writeUInt16LE(1, 22); // mono
  header.writeUInt32LE(sampleRate, 24);
  header.writeUInt32LE(sampleRate * 2, 28);
  header.writeUInt16LE(2, 32); // bytes per sample for all channels
  header.writeUInt16LE(16, 34); // bits per sample
  header.write('data', 36);
  header.writeUInt32LE(dataBytes, 40);
  return header;
}
