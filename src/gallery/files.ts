import { execFile } from 'node:child_process';
import { open } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, parse, relative, sep } from 'node:path';
import { systemCode } from '../errors.ts';
import { realPathOf } from '../files/make-folder.ts';
import { loudness } from './data.ts';

/** The MIME types of the videos and sounds that browsers may play, by file extension. */
export const mediaTypes: Readonly<Record<string, string>> = {
  '.mp4': 'video/mp4',
  '.m4v': 'video/mp4',
  '.mov': 'video/quicktime',
  '.webm': 'video/webm',
  '.mp3': 'audio/mpeg',
  '.wav': 'audio/wav',
  '.ogg': 'audio/ogg',
  '.opus': 'audio/ogg',
  '.m4a': 'audio/mp4',
};

/** Builds files' URLs relative to a page's folder. */
export class Links {
  readonly #from: string;
  readonly #folders = new Map<string, string>();

  /** @param folder the page's folder, which need not exist */
  constructor(folder: string) {
    this.#from = realPathOf(folder);
  }

  /**
   * Returns a file's URL relative to the page, percent-encoded. Returns undefined if the URL would reveal this
   * machine's folders. That is the case if the file is on a different drive, or if the page and the file share only the
   * root folder.
   */
  to(path: string): string | undefined {
    const relativePath = relative(this.#from, join(this.#realFolder(dirname(path)), basename(path)));
    const steps = relativePath.split(sep);
    const ups = steps.filter((step) => step === '..').length;
    const depth = this.#from.split(sep).filter((step) => step !== '').length;
    const isAtRoot = parse(this.#from).root === this.#from;
    if (isAbsolute(relativePath) || (ups >= depth && !isAtRoot)) return undefined;
    return steps.map((step) => (step === '..' ? step : encodeURIComponent(step))).join('/');
  }

  // Resolves symbolic links, because `..` from a link's target does not lead back to the folder that contains the link.
  #realFolder(folder: string): string {
    const real = this.#folders.get(folder) ?? realPathOf(folder);
    this.#folders.set(folder, real);
    return real;
  }
}

const sampleRate = 8000;
/** The maximum number of bytes to read from a sound file. */
const maxBytes = 64 * 1024 * 1024;
/** The maximum number of times that ffmpeg is started for one page. */
const maxStarts = 200;

/**
 * Measures the loudness of sounds, so that a page can draw their waveforms even if the browser is not allowed to read
 * the files. Reads WAV and raw samples directly. Other sounds have a waveform only if ffmpeg is installed.
 */
export class Peaks {
  #starts = 0;
  #isThere = true;

  /**
   * Returns the loudness of a file's sound, in the format of {@link loudness};
   * undefined if it is unknown. Never throws.
   */
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

// Reads only 16-bit mono samples, which mgw writes. Other samples would result in a wrong waveform.
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
  const samples = Buffer.from(bytes.subarray(0, bytes.length - (bytes.length % 2)));
  return new Int16Array(samples.buffer, samples.byteOffset, samples.length / 2);
}
