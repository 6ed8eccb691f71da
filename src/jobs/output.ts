import { basename, dirname, extname, isAbsolute, relative, resolve, sep } from 'node:path';
import { escapeFrom, realPathOf } from '../files/make-folder.ts';
import { hasUnsafe, printableLine } from '../printable.ts';
import {
  absoluteOutput,
  isObjectUrl,
  isUrl,
  outputProblem,
  parseObjectUrl,
  tildeProblem,
} from '../store-url.ts';
import { lstatSync } from 'node:fs';
import type { Milestone, Goal, Job, JobFile } from '../job.ts';

/** Where a result goes: a file or an object (`s3://BUCKET/KEY`), or standard output. */
export type Target = { kind: 'file'; path: string } | { kind: 'stdout' };

/**
 * Returns the path of the n-th of a job's files: `{n}.mp4` becomes `1.mp4`. If there are several, `clip.mp4` becomes
 * `clip-1.mp4` (design 6).
 */
export function numberedPath(path: string, index: number, count: number): string {
  if (path.includes('{n}')) return path.replaceAll('{n}', String(index + 1));
  if (count === 1) return path;
  const extension = extname(path);
  return `${path.slice(0, path.length - extension.length)}-${index + 1}${extension}`;
}

/**
 * Returns the absolute paths of `count` files at a target's path. The names never come from the server. `requested` is
 * the number of files in the request: if fewer files arrived, they have the names that were checked before payment.
 */
export function pathsAt(path: string, count: number, requested = count): string[] {
  const absolute = absoluteOutput(path);
  return Array.from({ length: count }, (_, index) =>
    numberedPath(absolute, index, Math.max(count, requested)),
  );
}

/** Builds a command's goal from its milestone and output. */
export function goalOf(command: Goal['command'], ask: Milestone, target: Target | undefined): Goal {
  if (target === undefined) return { command, ask };
  return { command, ask, output: target.kind === 'stdout' ? '-' : absoluteOutput(target.path) };
}

/**
 * Returns the absolute path of the output that the job's command specified. Prefers an output that has not been
 * delivered. Undefined if the command specified no output.
 */
export function goalOutput({ id, key, record }: Pick<Job, 'id' | 'key' | 'record'>): string | undefined {
  const goals = record.goals.filter(({ ask, output }) => ask === 'file' && output !== '-');
  const { output } = goals.find(({ deliveredAt }) => deliveredAt === undefined) ?? goals.at(-1) ?? {};
  // Only keys of batch rows contain a slash. The outputs of batch rows are templates in which only the job's id is
  // missing.
  if (key?.includes('/')) return output?.replaceAll('{job}', id);
  return output === undefined ? undefined : outputOf(output, id);
}

/**
 * Returns the files, of those given, that contain a job's result `number` (counted from 1). Their contents may differ,
 * because of `--mark` or another download. Records of earlier versions lack the result's number. For them, the job's
 * output determines the file, or else the number at the end of the file's name.
 * @param count the job's number of results
 */
export function filesOfSample(job: Job, files: readonly JobFile[], number: number, count: number): JobFile[] {
  if (count === 1) return [...files];
  const output = goalOutput(job);
  const samplePath = output === undefined ? undefined : numberedPath(output, number - 1, count);
  const unnumbered = files.filter(({ sample }) => sample === undefined);
  const atOutput = unnumbered.filter(({ path }) => path === samplePath);
  const others = unnumbered.filter(({ path }) => path.endsWith(`-${number}${extname(path)}`));
  const guessed = atOutput.length > 0 ? atOutput : others;
  return files.filter((file) => file.sample === number || guessed.includes(file));
}

/** Returns a job's output: the path or URL with `{id}` replaced by the job's id. */
export function outputOf(template: string, id: string): string {
  return template.replaceAll('{id}', id);
}

/** Returns the name of a piece's file and variant. Pieces are counted from 0. `hash` is the hash of its body. */
export function pieceName(index: number, hash: string): string {
  return `${String(index + 1).padStart(4, '0')}-${hash.slice(0, 16)}`;
}

/** Whether a job's file is a piece of long text (see {@link pieceName}). `tts --split` removes it after joining. */
export function isPiece({ protocol, record }: Pick<Job, 'protocol' | 'record'>, { path }: JobFile): boolean {
  return protocol === 'tts' && record.variant !== 'wav' && basename(path) === record.variant;
}

/** Returns a job's files, except the pieces of long text. */
export function visibleFiles(job: Pick<Job, 'protocol' | 'files' | 'record'>): JobFile[] {
  return job.files.filter((file) => !isPiece(job, file));
}

/** Whether two absolute output paths have the same file name and the same folder, after symbolic links are resolved. */
export function isSameOutput(one: string, other: string): boolean {
  if (one === other) return true;
  if (!isAbsolute(one) || !isAbsolute(other) || basename(one) !== basename(other)) return false;
  return realPathOf(dirname(one)) === realPathOf(dirname(other));
}

/** Whether a file exists at a path; false if that cannot be determined. */
export function pathExists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

/** The output of several jobs: a folder and a file name template. */
export interface OutputPlace {
  /** Absolute path. */
  folder: string;
  template: string;
  /**
   * Absolute path of the folder that must contain every file, even after symbolic links are resolved (default:
   * `folder`).
   */
  root?: string;
}

/** The value of each placeholder; undefined if a row or a job has none. */
export type OutputValues = Record<Placeholder, string | undefined>;

const placeholders = [
  'id',
  'key',
  'ext',
  'index',
  'name',
  'model',
  'protocol',
  'seed',
  'slug',
  'job',
  'n',
] as const;
type Placeholder = (typeof placeholders)[number];

const defaultTemplate = '{id}.{ext}';
// Leaves room for the longer names of a `.part` file and its metadata file.
const maxNameBytes = 200;
// Maximum length of an S3 object key, in bytes.
const maxPathBytes = 1024;

/** The placeholders that are filled in later: the job's id and the file's number. */
export const openPlaceholders = ['job', 'n'] as const;

/**
 * Returns the output that `-o` specifies: a folder, or a template whose folder ends before the first placeholder.
 * @param hasColumns whether row columns may be placeholders; if so, {@link outputPath} refuses unknown names
 * @throws Error if the output is not a valid template.
 */
export function outputPlace(output = defaultTemplate, hasColumns = false): OutputPlace {
  if (output.trim() === '' || output.includes('\0'))
    throw new Error('must be a template such as clips/{id}.{ext}');
  const problem = outputProblem(output);
  if (problem !== undefined) throw new Error(`must be ${problem}`);
  const fullTemplate = /[\\/]$/.test(output) ? `${output}${defaultTemplate}` : output;
  const fixedPrefix = fullTemplate.slice(
    0,
    fullTemplate.includes('{') ? fullTemplate.indexOf('{') : fullTemplate.length,
  );
  const end = fixedPrefix.lastIndexOf('/') + 1;
  const place = { folder: absoluteOutput(fixedPrefix.slice(0, end)), template: fullTemplate.slice(end) };
  if (!hasColumns) checkPlaceholders(place.template);
  return place;
}

/** Whether a template can produce a different path for each row. */
export function isPerRow(template: string): boolean {
  return /\{(id|key|index|seed|slug|job)\}/.test(template);
}

/** Returns a template's extension: `.wav` for `{id}.wav`; '' if it has none. */
export function fixedExtension(template: string): string {
  const extension = extname(template);
  return extension.includes('{') || extension.includes('}') ? '' : extension;
}

/**
 * Returns the absolute path of a file. `fileTemplate` replaces the template for this file. {@link openPlaceholders}
 * without a value remain in the path.
 * @throws Error if a value is missing or the path is not allowed.
 */
export function outputPath(place: OutputPlace, values: OutputValues, fileTemplate?: string): string {
  const template = fileTemplate ?? place.template;
  if (fileTemplate !== undefined && isUrl(fileTemplate))
    throw new Error("a row's output must be a path; for a bucket, use -o s3://BUCKET/FOLDER/{id}.{ext}");
  checkLength(template);
  const problem = tildeProblem(template);
  if (problem !== undefined) throw new Error(`${printableLine(template, 100)} must be ${problem}`);
  checkPlaceholders(template);
  const name = template.replace(placeholderPattern, (text: string, placeholder?: Placeholder) => {
    if (placeholder === undefined) return text.charAt(0);
    const value = values[placeholder];
    if (value === undefined && (openPlaceholders as readonly string[]).includes(placeholder)) return text;
    if (value === undefined || value === '') throw new Error(`no value is known for {${placeholder}}`);
    return sanitizeForName(value);
  });
  checkLength(name);
  return pathInside(place, name);
}

function checkLength(name: string): void {
  if (Buffer.byteLength(name) > maxPathBytes)
    throw new Error(`${printableLine(name, 60)} is longer than ${maxPathBytes} bytes`);
}

/** Replaces row columns in an output template. Standard placeholders and unknown names are left unchanged. */
export function fillColumns(template: string, valueOf: (name: string) => string | undefined): string {
  // `outputPath` refuses a template this long.
  if (template.length > maxPathBytes) return template;
  return template.replace(placeholderPattern, (text: string, name?: string) => {
    if (name === undefined || placeholders.includes(name as Placeholder)) return text;
    const value = valueOf(name);
    return value === undefined ? text : sanitizeForName(value).replace(/[{}]/g, '-');
  });
}

const placeholderPattern = /\{\{|\}\}|\{([^{}]*)\}/g;

function checkPlaceholders(template: string): void {
  for (const [text, name] of template.matchAll(placeholderPattern))
    if (name !== undefined && !placeholders.includes(name as Placeholder))
      throw new Error(
        `no such placeholder: ${printableLine(text, 40)}; available: ${placeholders.map((each) => `{${each}}`).join(' ')}`,
      );
}

// A value must not lead to another folder or a hidden file.
function sanitizeForName(value: string): string {
  const sanitized = value
    .slice(0, 4 * maxNameBytes)
    .replace(/[/\\\p{Cc}\p{Cf}:*?"<>|]+/gu, '-')
    .replace(/^\.+/, '_');
  return sanitized.slice(0, maxNameBytes);
}

function pathInside(place: OutputPlace, name: string): string {
  const { folder } = place;
  if (isObjectUrl(folder)) return objectUrlFor(folder, name);
  const path = resolve(folder, name);
  const relativePath = relative(folder, path);
  if (isAbsolute(name) || relativePath === '' || relativePath.split(sep)[0] === '..')
    throw new Error(`${printableLine(name, 100)} is not in the output folder ${folder}`);
  if (/[\\/]$/.test(name)) throw new Error(`${printableLine(name, 100)} is a folder: use a file in it`);
  const parts = relativePath.split(sep);
  if (hasUnsafe(name))
    throw new Error(`${printableLine(name, 100)} contains a line break or a control character`);
  const hiddenPart = parts.find((part) => part.startsWith('.'));
  if (hiddenPart !== undefined)
    throw new Error(`${printableLine(hiddenPart, 60)} starts with a dot: hidden files are not written`);
  checkLinks(place.root ?? folder, dirname(path));
  const longPart = parts.find((part) => Buffer.byteLength(part) > maxNameBytes);
  if (longPart !== undefined)
    throw new Error(`${printableLine(longPart, 60)} is longer than ${maxNameBytes} bytes`);
  return path;
}

function objectUrlFor(folder: string, name: string): string {
  if (hasUnsafe(name))
    throw new Error(`${printableLine(name, 100)} contains a line break or a control character`);
  const url = `${folder}${name}`;
  parseObjectUrl(url);
  return url;
}

/** Checks that no symbolic link leads from a folder to a place outside `root`. @throws Error with the destination. */
export function checkLinks(root: string, folder: string): void {
  const destination = escapeFrom(root, folder);
  if (destination === undefined) return;
  throw new Error(
    `a symbolic link leads from ${printableLine(folder)} to ${printableLine(destination)}, outside the output folder ${printableLine(root)}`,
  );
}

/** Turns text into a file name: `A boat, at sea!` becomes `a-boat-at-sea`. */
export function slugOf(text: string): string {
  const words =
    text
      .normalize('NFKC')
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  let slug = '';
  for (const word of words) {
    const longerSlug = slug === '' ? word : `${slug}-${word}`;
    if (Buffer.byteLength(longerSlug) > 60) break;
    slug = longerSlug;
  }
  return slug === '' && words[0] !== undefined ? Array.from(words[0]).slice(0, 15).join('') : slug;
}

/** Normalizes paths that some file systems treat as equal. */
export function sameFileName(path: string): string {
  return path.normalize('NFC').toLowerCase();
}
