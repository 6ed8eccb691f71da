import { basename, dirname, extname } from 'node:path';
import { expensesOf } from '../budget/spend.ts';
import { formatDecimal } from '../decimal.ts';
import type { Job, JobFile, RecordedEvent } from '../job.ts';
import type { FileState } from '../files/whole-file.ts';
import { fetchCommand, resolveCommand, showCommand } from '../jobs/errors.ts';
import { deliveredText, mismatchTexts } from '../jobs/receipt.ts';
import { shownState } from '../jobs/reconcile.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { printable } from '../printable.ts';
import { isObjectUrl } from '../store-url.ts';
import { fileCount } from '../jobs/fetch-place.ts';
import { filesOfSample } from '../jobs/output.ts';
import { frameNamesIn, requestedText, redoRow } from './redo.ts';
import type { GalleryFile, GalleryItem, ShownState } from './data.ts';
import { mediaTypes } from './files.ts';

/** Dependencies for building a page's items. */
export interface CollectDeps {
  /** Removes secrets from a string: the key, and signatures in URLs. */
  redact: (text: string) => string;
  /** Returns the URL of a job's file; undefined if the page cannot link to it. */
  hrefOf: (job: Job, index: number) => string | undefined;
  /** Returns the state of a job's file. Only intact files are linked. */
  fileState: (file: JobFile) => FileState;
  peaksOf: (file: JobFile) => Promise<string | undefined>;
  /** Formats a command for a shell. */
  commandText: (words: readonly string[]) => string;
  /** Folders to remove from text, in addition to the files' own folders. */
  folders: readonly string[];
  /** The currency's name. */
  currency: string;
}

/** Converts jobs to a page's items. */
export async function collectItems(
  jobs: readonly Job[],
  ledger: Pick<Ledger, 'events' | 'ids' | 'read'>,
  deps: CollectDeps,
): Promise<GalleryItem[]> {
  const files = jobs.flatMap((job) => job.files);
  const folders = [...new Set([...deps.folders, ...files.map(({ path }) => dirname(path))])]
    .filter(({ length }) => length > 1)
    .sort((one, other) => other.length - one.length);
  const items: GalleryItem[] = [];
  const frameRefs = await findFrameRefs(jobs, ledger);
  for (const job of jobs)
    items.push(await itemOf(job, await ledger.events(job.id), frameRefs, { ...deps, folders }));
  return items;
}

// Maps the name of each frame of an earlier job that these jobs use to a reference, such as `@JOB:last`.
async function findFrameRefs(
  jobs: readonly Job[],
  ledger: Pick<Ledger, 'ids' | 'read'>,
): Promise<Map<string, string>> {
  const refs = new Map<string, string>();
  const names = new Set(jobs.flatMap(({ request }) => frameNamesIn(request)));
  if (names.size === 0) return refs;
  for (const id of await ledger.ids()) {
    const source = await ledger.read(id);
    if (source === undefined || source.record.firstFiles.length === 0) continue;
    const count = fileCount(source);
    for (let number = 1; number <= count; number += 1) {
      const [file] = filesOfSample(source, source.record.firstFiles, number, count);
      for (const place of ['first', 'last'])
        refs.set(`sha256:${file?.sha256}.mp4#${place}`, `@${id}${count > 1 ? `#${number}` : ''}:${place}`);
    }
  }
  return refs;
}

async function itemOf(
  job: Job,
  events: readonly (RecordedEvent | undefined)[],
  frameRefs: ReadonlyMap<string, string>,
  deps: CollectDeps,
): Promise<GalleryItem> {
  const state = stateOf(job);
  const files = await filesOf(job, deps);
  const next = nextCommand(job, state, deps);
  const redo = redoRow(job, deps.redact, frameRefs);
  const prompt = requestedText(job, 'prompt');
  return {
    id: job.id,
    key: job.key,
    protocol: job.protocol,
    model: job.model,
    state,
    created: job.created_at,
    // Omit the prompt if the row that remakes the job contains it, so that the page contains it only once.
    prompt: 'row' in redo && textToMake(redo.row) === prompt ? undefined : prompt && deps.redact(prompt),
    seed: requestedText(job, 'seed'),
    duration: requestedText(job, 'duration'),
    resolution: requestedText(job, 'resolution'),
    tags: job.tags,
    ...priceOf(job, events, deps),
    reason: reasonOf(job, state, deps),
    command: next && deps.commandText(next),
    files,
    rating: job.rating,
    note: job.note === undefined ? undefined : deps.redact(job.note),
    rated: job.rated_at,
    ...('row' in redo ? { redo: redo.row } : { noRedo: redo.why }),
  };
}

// Returns the prompt, or the text to speak, from a manifest's row.
function textToMake(row: Record<string, unknown>): unknown {
  return row['prompt'] ?? row['text'];
}

function stateOf(job: Job): ShownState {
  const state = shownState(job);
  const isRefused = state === 'failed' || state === 'rejected';
  return isRefused && job.error?.code === 'content_policy' ? 'filtered' : state;
}

function priceOf(
  job: Job,
  events: readonly (RecordedEvent | undefined)[],
  { currency }: CollectDeps,
): Pick<GalleryItem, 'price' | 'currency' | 'charge'> {
  const last = expensesOf(job, events).at(-1);
  if (last === undefined) return {};
  if (last.amount === undefined) return { charge: last.kind };
  return { price: formatDecimal(last.amount), currency, charge: last.kind };
}

function reasonOf(
  job: Job,
  state: ShownState,
  { redact, folders, hrefOf, fileState }: CollectDeps,
): string | undefined {
  if (state === 'succeeded') {
    const objects = objectsOf(job, fileState).map(({ path }) => printable(redact(path), 1000));
    if (objects.length > 0)
      return `The result was saved in a bucket, so this page does not show it: ${objects.join(', ')}`;
    const lost = job.files.find((file) => !isObjectUrl(file.path) && fileState(file) !== 'intact');
    const far = job.files.find((file, index) => !isObjectUrl(file.path) && hrefOf(job, index) === undefined);
    if (lost !== undefined)
      return `${basename(lost.path)} ${fileState(lost) === 'gone' ? 'is gone' : 'has changed since it was saved'}.`;
    if (far !== undefined)
      return `${basename(far.path)} cannot be linked from this page. To copy it next to the page, use --copy.`;
    return job.files.length === 0 ? 'The result was not saved.' : undefined;
  }
  if (job.error === undefined) return undefined;
  const text = printable(redact(job.error.message), 1000);
  return folders.reduce((shown, folder) => shown.replaceAll(folder, '…'), text);
}

// Returns the objects that contain a job's result; none if a file on this machine contains it too.
function objectsOf({ files }: Job, fileState: CollectDeps['fileState']): JobFile[] {
  if (files.some((file) => fileState(file) === 'intact')) return [];
  return files.filter(({ path }) => isObjectUrl(path));
}

async function filesOf(job: Job, deps: CollectDeps): Promise<GalleryFile[]> {
  const files: GalleryFile[] = [];
  for (const [index, file] of job.files.entries()) {
    const href = deps.hrefOf(job, index);
    if (href === undefined || deps.fileState(file) !== 'intact') continue;
    const kind = kindOf(job, file);
    const peaks = kind === 'audio' ? await deps.peaksOf(file) : undefined;
    files.push({ href, name: basename(file.path), kind, bytes: file.bytes, ...receiptOf(file, deps), peaks });
  }
  return files;
}

function receiptOf(file: JobFile, { redact }: CollectDeps): Pick<GalleryFile, 'delivered' | 'mismatches'> {
  const { delivered, mismatches } = file;
  if (delivered === undefined) return {};
  const texts = mismatchTexts(file).map((text) => printable(redact(text), 200));
  return { delivered: deliveredText(delivered), ...(mismatches !== undefined && { mismatches: texts }) };
}

// Raw samples are treated as `other`, because browsers do not play samples without a header.
function kindOf({ protocol }: Job, { path, mime }: JobFile): GalleryFile['kind'] {
  if (mime === 'audio/L16') return 'other';
  const type = mediaTypes[extname(path).toLowerCase()];
  if (type === undefined) return protocol === 'tts' ? 'other' : 'video';
  return type.startsWith('video/') ? 'video' : 'audio';
}

/** Returns the next command for a job, as an argument vector; undefined if there is nothing to do. */
function nextCommand(job: Job, state: ShownState, { fileState }: CollectDeps): string[] | undefined {
  switch (state) {
    case 'succeeded': {
      if (job.files.some((file) => fileState(file) === 'intact')) return undefined;
      const [object] = objectsOf(job, fileState);
      return object === undefined ? fetched(job) : copyCommand(job, object);
    }
    case 'queued':
    case 'running':
      return fetched(job);
    case 'unknown':
      return job.protocol === 'tts'
        ? ['mgw', 'jobs', 'resolve', job.id, '--not-created']
        : resolveCommand(job);
    case 'failed':
    case 'filtered':
    case 'rejected':
      return retried(job);
    case 'prepared':
    case 'sending':
      return showCommand(job);
  }
}

// Returns the command that gets the result. Speech must be remade, because the gateway does not store speech.
function fetched(job: Job): string[] {
  return job.protocol === 'tts' ? retried(job) : [...fetchCommand(job), '-o', `${job.id}.mp4`];
}

// Returns the command that copies speech from its bucket; undefined for a video, which only the gateway provides.
function copyCommand({ id, protocol }: Job, { path }: JobFile): string[] | undefined {
  return protocol === 'tts' ? ['mgw', 'jobs', 'fetch', id, '-o', `${id}${extname(path)}`] : undefined;
}

function retried(job: Job): string[] {
  const [batch, row] = job.key?.split('/') ?? [];
  if (batch === undefined || row === undefined) return showCommand(job);
  return ['mgw', 'batch', 'retry', batch, '--id', row];
}
