import { createHash, randomBytes } from 'node:crypto';
import { constants, existsSync, realpathSync, statSync } from 'node:fs';
import { copyFile, link, mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve, isAbsolute, parse, relative, sep } from 'node:path';
import { script, style } from 'virtual:gallery-page';
import { localError, MgwError, systemCode } from '../errors.ts';
import { isIntact } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { type GalleryData, loudness } from './data.ts';
import type { FileState } from './collect.ts';
import { execFile } from 'node:child_process';

/** Returns the absolute path of the page for `-o`: a folder, or a file whose name ends in `.html`. */
export function pagePath(given: string): string {
  return extname(given).toLowerCase() === '.html' && !/[\\/]$/.test(given)
    ? resolve(given)
    : resolve(given, 'index.html');
}

/**
 * Writes a page, whole or not at all.
 * @throws MgwError: exit 10 if there is a page that is not mgw's, or it cannot be written.
 */
export async function writePage(path: string, html: string, force: boolean): Promise<void> {
  if (!force) await checkOwn(path);
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await mkdir(dirname(path), { recursive: true });
    const file = await open(draft, 'wx');
    try {
      await file.writeFile(html);
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw localError(error, path, 'no');
  }
}

async function checkOwn(path: string): Promise<void> {
  if (!existsSync(path) || (await isOwn(path))) return;
  throw new MgwError(
    'output_exists',
    `${path} exists already, and is not a gallery of mgw's. --force replaces it.`,
    {
      retry: 'safe',
    },
  );
}

// False for a folder, and for a file that cannot be read.
async function isOwn(path: string): Promise<boolean> {
  try {
    const file = await open(path, 'r');
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(4096), 0, 4096, 0);
      return buffer.toString('latin1', 0, bytesRead).includes(generator);
    } finally {
      await file.close();
    }
  } catch {
    return false;
  }
}

/** The folder of the copies, next to the page. */
const mediaFolder = 'media';

/**
 * Puts a job's files next to a page, as hard links if the disk allows it, and returns their new paths. A file that does
 * not hold what the job recorded is left out: a foreign record may name any file of this user.
 * @throws MgwError('local_io'), exit 10.
 */
export async function copyFiles(job: Job, page: string): Promise<Map<string, string>> {
  const copies = new Map<string, string>();
  for (const file of job.files) {
    const { path } = file;
    if (stateBySize(file) !== 'intact') continue;
    const copy = join(dirname(page), mediaFolder, `${job.id}-${basename(path)}`);
    try {
      if (!(await isIntact({ ...file, path: copy }))) {
        await mkdir(dirname(copy), { recursive: true });
        await rm(copy, { force: true });
        await link(path, copy).catch(() => copyFile(path, copy, constants.COPYFILE_FICLONE));
      }
      // Checked at its new place: the source may be replaced while it is copied.
      if (await isIntact({ ...file, path: copy })) copies.set(path, copy);
      else await rm(copy, { force: true });
    } catch (error) {
      throw localError(error, copy, 'no');
    }
  }
  return copies;
}

/** Identifies a page of mgw, so that no other file is overwritten. */
const generator = '<meta name="generator" content="mgw gallery">';

/**
 * Returns the page as HTML, with its script and style inside and links to the media. No prompt can begin or end an element,
 * and the page's policy allows only its own script.
 * @param redact Removes the key from the data.
 */
export function pageHtml(data: GalleryData, redact: (text: string) => string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy()}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
${generator}
<title>mgw gallery</title>
<style>${style}</style>
</head>
<body>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="data">${redact(jsonInHtml(data))}</script>
<script>${script}</script>
</body>
</html>
`;
}

// Everything is loaded from the page's own origin, or from the disk if the page is a file.
function policy(): string {
  return [
    "default-src 'none'",
    `script-src ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "media-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

function hashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

/** Returns JSON without characters that are special in HTML, or that end a line in JavaScript. */
function jsonInHtml(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Builds the relative URLs of files from the folder of a page. */
export class Links {
  readonly #from: string;
  readonly #folders = new Map<string, string | undefined>();

  /** @param folder The folder of the page. It need not exist. */
  constructor(folder: string) {
    this.#from = real(folder) ?? folder;
  }

  /**
   * Returns the URL of a file relative to the page, percent-encoded. Undefined if it would reveal the location on this
   * machine: on another drive, or if the two share only the root folder.
   */
  to(path: string): string | undefined {
    const folder = this.#realFolder(dirname(path));
    if (folder === undefined) return undefined;
    const way = relative(this.#from, join(folder, basename(path)));
    const steps = way.split(sep);
    const ups = steps.filter((step) => step === '..').length;
    const depth = this.#from.split(sep).filter((step) => step !== '').length;
    const isAtRoot = parse(this.#from).root === this.#from;
    if (isAbsolute(way) || (ups >= depth && !isAtRoot)) return undefined;
    return steps.map((step) => (step === '..' ? step : encodeURIComponent(step))).join('/');
  }

  #realFolder(folder: string): string | undefined {
    if (!this.#folders.has(folder)) this.#folders.set(folder, real(folder));
    return this.#folders.get(folder);
  }
}

// Going up from the target of a symbolic link does not lead back to the folder that holds the link.
function real(folder: string): string | undefined {
  try {
    return realpathSync(folder);
  } catch {
    const parent = dirname(folder);
    const above = parent === folder ? undefined : real(parent);
    return above === undefined ? undefined : join(above, basename(folder));
  }
}

/** Returns the state of a file by its size alone, for a page whose files are hashed when they are served. */
export function stateBySize({ path, bytes }: Pick<JobFile, 'path' | 'bytes'>): FileState {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) return 'gone';
    return found.isFile() && found.size === bytes ? 'intact' : 'changed';
  } catch {
    return 'gone';
  }
}

const sampleRate = 8000;
/** No more of a sound is read. Bytes. */
const maxBytes = 64 * 1024 * 1024;
/** The maximum number of starts of ffmpeg for one page. */
const maxStarts = 200;

/**
 * Measures the loudness of sounds, so that a page can draw their waveforms even if the browser may not read the files. WAV and
 * raw samples are read here. Other sounds need ffmpeg; without it they have no waveform.
 */
export class Peaks {
  #starts = 0;
  #isThere = true;

  /** Returns the loudness of a file's sound, as {@link loudness} does; undefined if it is unknown. Never throws. */
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

// mgw writes mono with 16 bits. Other samples would give a wrong picture.
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
