import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import {
  isSpeechFormat,
  renderSpeech,
  speechChunks,
  type SpeechFormat,
} from '../../../src/sandbox/media/speech.ts';
import { ffmpeg, hasFfmpeg } from './ffmpeg.ts';
import { readMp3 } from './read-mp3.ts';

const RATES = [8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000];
const TEXT = 'Good morning, and welcome aboard. 你好世界! ';
/** The text's duration, in seconds. The text contains four Chinese syllables. */
const SECONDS = (Array.from(TEXT).length * 60 + 4 * 140) / 1000;

/** Returns how similar the samples are to themselves shifted by `period` samples: about 1 for a tone of that period. */
function repetition(samples: Int16Array, period: number): number {
  const shift = Math.round(period);
  const product = samples.reduce((sum, sample, index) => sum + sample * (samples[index + shift] ?? 0), 0);
  return product / samples.reduce((sum, sample) => sum + sample * sample, 0);
}

/** Whether the samples repeat with the period of the pitch, but not with periods near it. */
function sounds(samples: Int16Array, pitch: number, sampleRate: number): boolean {
  const period = sampleRate / pitch;
  const max = Math.max(...[0.6, 0.8, 1.25, 1.5].map((other) => repetition(samples, period * other)));
  return repetition(samples, period) > Math.max(0.6, 0.1 + max);
}

function loudness(samples: Int16Array): number {
  return Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
}

function largest(values: Int16Array): number {
  return values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
}

function toSamples(pcm: Uint8Array): Int16Array {
  const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  return Int16Array.from({ length: pcm.length / 2 }, (_, index) => view.getInt16(index * 2, true));
}

describe('speechChunks', () => {
  it('accepts only the exact names of its formats', () => {
    expect(['mp3', 'pcm', 'wav', 'ogg_opus'].every(isSpeechFormat)).toBe(true);
    expect(['flac', 'MP3', '', 'toString'].some(isSpeechFormat)).toBe(false);
  });

  it.each(['mp3', 'pcm', 'wav', 'ogg_opus'] as const)(
    'returns the same bytes each time, in small fragments: %s',
    (format) => {
      const options = { text: TEXT, format, sampleRate: 24_000 };
      const chunks = [...speechChunks(options)];
      expect(Buffer.concat(chunks).equals(renderSpeech(options))).toBe(true);
      expect(chunks.length).toBeGreaterThanOrEqual(Math.floor(SECONDS / 0.4));
      expect(Math.max(...chunks.map(({ length }) => length))).toBeLessThan(24_000);
    },
  );

  it('returns the first chunk immediately for text of any length, and the rest on demand', () => {
    const hours = speechChunks({ text: 'word '.repeat(100_000), format: 'mp3', sampleRate: 24_000 });
    const first = hours.next().value as Uint8Array;
    expect(readMp3(first).length).toBeGreaterThan(0);
    expect(first.length).toBeLessThan(10_000);
    hours.return(undefined);
  });

  it.each([0, -8000, 0.5, Number.NaN])('refuses a sample rate of %d', (sampleRate) => {
    expect(() => renderSpeech({ text: 'hello', format: 'pcm', sampleRate })).toThrow(RangeError);
  });
});

describe('sandbox speech as PCM', () => {
  it.each([
    ['Good morning', 12 * 0.06],
    ['早上好，欢迎光临。', 7 * 0.2 + 2 * 0.06],
    ['안녕하세요', 5 * 0.2],
    ['おはようカタカナ', 8 * 0.2],
    ['Größe', 0.5],
    ['', 0.5],
  ])("speaks %j at the speed of the text's script, for at least half a second", (text, seconds) => {
    const samples = renderSpeech({ text, format: 'pcm', sampleRate: 16_000 }).length / 2;
    expect(samples / 16_000).toBeCloseTo(seconds, 3);
  });

  it('has a pitch that depends on the text, is never loud, and is silent for punctuation alone', () => {
    const render = (text: string) => toSamples(renderSpeech({ text, format: 'pcm', sampleRate: 16_000 }));
    expect(sounds(render('n'.repeat(10)), 220, 16_000)).toBe(true);
    expect(sounds(render('s'.repeat(10)), 440, 16_000)).toBe(true);
    const peak = largest(render(TEXT));
    expect(peak).toBeGreaterThan(2000);
    expect(peak).toBeLessThan(8000);
    expect(new Set(render('  ... ... '))).toEqual(new Set([0]));
  });

  it('has no clicks, because neighbouring samples are never far apart', () => {
    const samples = toSamples(renderSpeech({ text: TEXT, format: 'pcm', sampleRate: 48_000 }));
    const steps = samples.subarray(1).map((sample, index) => sample - (samples[index] ?? 0));
    expect(largest(steps)).toBeLessThan(600);
  });
});

describe('sandbox speech as WAV', () => {
  it('repeats its header in every fragment, followed by the PCM data', () => {
    const options = { text: TEXT, sampleRate: 22_050 };
    const fragments = [...speechChunks({ ...options, format: 'wav' })].map((chunk) => Buffer.from(chunk));
    expect(fragments.length).toBeGreaterThan(5);
    for (const wav of fragments) {
      expect(wav.toString('latin1', 0, 4) + wav.toString('latin1', 8, 16)).toBe('RIFFWAVEfmt ');
      expect(wav.readUInt32LE(4)).toBe(wav.length - 8);
      const format = [wav.readUInt16LE(20), wav.readUInt16LE(22), wav.readUInt32LE(24), wav.readUInt16LE(34)];
      expect(format).toEqual([1, 1, 22_050, 16]);
      expect([wav.readUInt32LE(28), wav.readUInt16LE(32)]).toEqual([44_100, 2]);
      expect(wav.toString('latin1', 36, 40)).toBe('data');
      expect(wav.readUInt32LE(40)).toBe(wav.length - 44);
    }
    const samples = Buffer.concat(fragments.map((wav) => wav.subarray(44)));
    expect(samples.equals(renderSpeech({ ...options, format: 'pcm' }))).toBe(true);
  });
});

describe('sandbox speech as MP3', () => {
  it.each(RATES)('is a mono stream of 64 kbit/s at %i Hz, in fragments of whole frames', (sampleRate) => {
    const fragments = [...speechChunks({ text: TEXT, format: 'mp3', sampleRate })];
    const frames = fragments.flatMap(readMp3);
    for (const frame of frames)
      expect(frame).toMatchObject({ sampleRate, channels: 1, bitsPerSecond: 64_000 });
    const frameSeconds = (frames[0]?.samples ?? 0) / sampleRate;
    const bytes = fragments.reduce((sum, { length }) => sum + length, 0);
    expect(bytes).toBe(Math.floor(frames.length * frameSeconds * 8000 + 1e-6));
  });

  it('contains one tone at a time, and no tone in a pause', () => {
    const lines = (text: string) =>
      readMp3(renderSpeech({ text, format: 'mp3', sampleRate: 24_000 })).flatMap(({ granules }) => granules);
    const toneOf220Hertz = Math.round(220 / (24_000 / 1152));
    const sounding = lines('n'.repeat(20)).map((granule) => granule.map(({ line }) => line));
    expect(sounding).toEqual(sounding.map(() => [toneOf220Hertz]));
    expect(lines('. '.repeat(10)).every(({ length }) => length === 0)).toBe(true);
    expect(lines('nopqrstuvw').some(({ length }) => length === 1)).toBe(true);
  });

  it('has the correct duration for any text and rate', () => {
    const rates = fc.constantFrom(...RATES, 11_025, 12_000);
    const text = fc.string({ unit: 'grapheme', maxLength: 20 });
    const property = fc.property(text, rates, (spoken, sampleRate) => {
      const frames = readMp3(renderSpeech({ text: spoken, format: 'mp3', sampleRate }));
      const samples = frames.reduce((sum, frame) => sum + frame.samples, 0);
      // The speech for each character lasts a whole number of milliseconds.
      const seconds = renderSpeech({ text: spoken, format: 'pcm', sampleRate: 1000 }).length / 2 / 1000;
      expect(samples / sampleRate).toBeGreaterThanOrEqual(seconds - 1e-9);
      expect(samples / sampleRate).toBeLessThan(seconds + 1152 / sampleRate);
    });
    fc.assert(property, { numRuns: 30 });
  });

  it('is refused at a rate that the format does not support', () => {
    expect(() => renderSpeech({ text: 'hello', format: 'mp3', sampleRate: 96_000 })).toThrow(RangeError);
  });
});

describe('sandbox speech as Ogg Opus', () => {
  it('is a complete sequence of pages that ends at the correct sample', () => {
    const fragments = [...speechChunks({ text: TEXT, format: 'ogg_opus', sampleRate: 24_000 })];
    const stream = Buffer.concat(fragments);
    const pages: { type: number; granule: number; sequence: number }[] = [];
    for (let at = 0; at < stream.length;) {
      expect(stream.toString('latin1', at, at + 4)).toBe('OggS');
      const segments = stream.readUInt8(at + 26);
      const body = stream.subarray(at + 27, at + 27 + segments).reduce((sum, length) => sum + length, 0);
      const [type, granule] = [stream.readUInt8(at + 5), Number(stream.readBigUInt64LE(at + 6))];
      pages.push({ type, granule, sequence: stream.readUInt32LE(at + 18) });
      at += 27 + segments + body;
    }
    expect(pages.map(({ sequence }) => sequence)).toEqual(pages.map((_, index) => index));
    expect(pages.map(({ type }) => type)).toEqual([2, ...pages.slice(2).map(() => 0), 4]);
    const preSkip = stream.readUInt16LE(28 + 10);
    expect(pages.at(-1)?.granule).toBe(preSkip + Math.round(SECONDS * 48_000));
  });
});

describe.skipIf(!hasFfmpeg)('ffmpeg on sandbox speech', () => {
  const decode = (text: string, format: SpeechFormat, sampleRate: number) =>
    ffmpeg(renderSpeech({ text, format, sampleRate }), [], ['-f', 's16le']);

  // A rate of MPEG-1, and one of its extensions to lower rates. readMp3 checks the frames of every rate.
  it.each([8000, 44_100])('decodes mp3 at %i Hz to the end without an error', (sampleRate) => {
    const stream = renderSpeech({ text: TEXT, format: 'mp3', sampleRate });
    const { output, complaints } = ffmpeg(stream, ['-f', 'mp3'], ['-f', 's16le']);
    // A stream without tags, like the real service's, does not contain its length.
    expect(complaints.replace(/^.*Estimating duration from bitrate.*\n/gm, '')).toBe('');
    const samples = readMp3(stream).reduce((sum, frame) => sum + frame.samples, 0);
    expect(output.length / 2).toBe(samples);
  });

  it("finds the characters' pitch and the pauses in ogg_opus, at about the loudness of the other formats", () => {
    // Each character's tone lasts 60 ms.
    const text = `${'n'.repeat(10)}${'s'.repeat(10)}${'v'.repeat(10)}${'. '.repeat(10)}`;
    const { output, complaints } = decode(text, 'ogg_opus', 24_000);
    expect(complaints).toBe('');
    expect(output.length / 2).toBe(50 * 60 * 48);
    const samples = toSamples(output);
    for (const [index, pitch] of [220, 440, 659].entries()) {
      const tone = samples.subarray(index * 28_800 + 7200, index * 28_800 + 24_000);
      expect(sounds(tone, pitch, 48_000)).toBe(true);
      expect(loudness(tone)).toBeGreaterThan(1000);
      expect(loudness(tone)).toBeLessThan(6000);
    }
    expect(loudness(samples.subarray(100_000))).toBe(0);
  });
});
