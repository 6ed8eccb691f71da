import { execFile } from 'node:child_process';
import { open } from 'node:fs/promises';
import { systemCode } from '../errors.ts';
import { loudness } from './data.ts';

const sampleRate = 8000;
/** The maximum part of a sound that is read. */
const maxBytes = 64 * 1024 * 1024;
/** How often ffmpeg is started for one page at most: each takes a moment. */
const maxStarts = 200;

/**
 * Finds how loud sounds are, so that a page can draw their waveform even if the browser may not read the files. WAV and raw samples are read here;
 * other sounds need ffmpeg, and have no waveform if that is not installed.
 */
export class Peaks {
  #starts = 0;
  #isThere = true;

  /** A digit from 0 to 9 for each of equal parts, the loudest being 9; undefined if nothing tells. Never throws. */
  async of(path: string): Promise<string | undefined> {
    const samples = /\.(wav|pcm)$/i.test(path) ? await readSamples(path) : await this.#decoded(path);
    return samples === undefined || samples.length === 0 ? undefined : loudness(samples, 1);
  }

  async #decoded(path: string): Promise<Int16Array | undefined> {
    if (!this.#isThere || this.#starts >= maxStarts) return undefined;
    this.#starts += 1;
    const args = ['-v', 'error', '-nostdin', '-i', `file:${path}`, '-ac', '1', '-ar', String(sampleRate)];
    return new Promise((resolve) => {
      const options = { encoding: 'buffer', maxBuffer: maxBytes, timeout: 20_000 } as const;
      execFile('ffmpeg', [...args, '-f', 's16le', 'pipe:1'], options, (error, bytes) => {
        if (systemCode(error) === 'ENOENT') this.#isThere = false;
        resolve(error === null ? samplesOf(bytes) : undefined);
      });
    });
  }
}

// Mono and 16 bits are what mgw writes; of anything else the picture would be wrong.
async function readSamples(path: string): Promise<Int16Array | undefined> {
  try {
    const file = await open(path, 'r');
    try {
      const length = Math.min((await file.stat()).size, maxBytes);
      const { bytesRead, buffer } = await file.read(Buffer.alloc(length), 0, length, 0);
      const bytes = buffer.subarray(0, bytesRead);
      if (bytes.toString('latin1', 0, 4) !== 'RIFF') return samplesOf(bytes);
      const data = bytes.indexOf('data', 12, 'latin1') + 8;
      const isOurs = bytes.readUInt16LE(22) === 1 && bytes.readUInt16LE(34) === 16 && data >= 8;
      return isOurs ? samplesOf(bytes.subarray(data)) : undefined;
    } finally {
      await file.close();
    }
  } catch {
    return undefined;
  }
}

function samplesOf(bytes: Buffer): Int16Array {
  const whole = Buffer.from(bytes.subarray(0, bytes.length - (bytes.length % 2)));
  return new Int16Array(whole.buffer, whole.byteOffset, whole.length / 2);
}
