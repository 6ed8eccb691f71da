import { extname, join, resolve } from 'node:path';
import { type KnownBatch, recallBatch, rememberBatch } from '../../../batch/known-batches.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { fieldName } from '../../../batch/manifest/fields.ts';
import { formatOf } from '../../../batch/manifest/manifest.ts';
import type { Batch } from '../../../batch/plan.ts';
import { formatDecimal, parseAmount } from '../../../decimal.ts';
import { messageOf, MgwError, usageError } from '../../../errors.ts';
import { isFolder } from '../../../files/make-folder.ts';
import { pathExists } from '../../../jobs/output.ts';
import { printableLine } from '../../../printable.ts';
import { budgetState } from '../../../flows/budgets.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import { shellWord } from '../../output/human.ts';
import { batchOf, openBatch } from './open.ts';
import type { BatchOptions } from './options.ts';

/** A batch that the command line identifies by its file or its name. */
export interface NamedBatch<T> {
  /** The path of the batch's file, or the name of an enqueued batch. */
  file: string;
  options: T;
  batch: Batch;
  /** Whether the rows come from the queue. */
  isQueued: boolean;
  /** Whether this machine has run or enqueued the same file under the same name before. */
  isRerun: boolean;
}

/**
 * Opens a batch by its file, or by its name if it was enqueued or was run here before. Options that are not on the
 * command line default to those of the last run (design 13).
 * @throws MgwError('usage') if there is no such batch, or its file cannot be read.
 */
export async function openNamed<T extends BatchOptions>(
  context: Context,
  nameOrFile: string,
  typedOptions: T,
): Promise<NamedBatch<T>> {
  const fleet = isPath(nameOrFile, typedOptions) ? undefined : fleetStateOf(await context.ledger());
  if (fleet !== undefined) {
    const { queuedManifest } = await import('../../../batch/fleet/queued-row.ts');
    const manifest = await queuedManifest(fleet.query, nameOrFile);
    if (manifest !== undefined) {
      const batch = batchOf(manifest, nameOrFile, typedOptions);
      return { file: nameOrFile, options: typedOptions, batch, isQueued: true, isRerun: true };
    }
  }
  const knownBatch = await recallNamed(context, nameOrFile, typedOptions);
  const file = knownBatch !== undefined && !isPath(nameOrFile, typedOptions) ? knownBatch.file : nameOrFile;
  const options =
    knownBatch === undefined
      ? typedOptions
      : withLastOptions(knownBatch, typedOptions, !isPath(nameOrFile, typedOptions));
  const batch = await openBatch(context, file, options, knownBatch);
  return { file, options, batch, isQueued: false, isRerun: knownBatch?.name === batch.name && file !== '-' };
}

// A batch's name may contain a dot, and the batch's outputs may be in a folder of that name.
function isPath(nameOrFile: string, { format }: BatchOptions): boolean {
  if (format !== undefined) return true;
  if (nameOrFile === '-' || /[\\/]/.test(nameOrFile) || formatOf(nameOrFile) !== undefined) return true;
  return extname(nameOrFile) !== '' && pathExists(nameOrFile) && !isFolder(nameOrFile);
}

async function recallNamed(
  context: Context,
  nameOrFile: string,
  options: BatchOptions,
): Promise<KnownBatch | undefined> {
  const folder = ledgerFolder(await context.settings());
  if (isPath(nameOrFile, options)) {
    const file = recordedPath(nameOrFile);
    const knownBatch = await recallBatch(folder, options.name ?? file);
    return knownBatch?.file === file ? knownBatch : undefined;
  }
  const knownBatch = await recallBatch(folder, nameOrFile);
  if (knownBatch?.file === '-') throw stdinError(knownBatch);
  if (knownBatch !== undefined) return knownBatch;
  throw usageError(
    `No batch named ${printableLine(nameOrFile, 100)} was run here. If it is a file, rename it to end in .csv, .jsonl or .yaml, or use --format.`,
    ['mgw', 'batch', 'ls'],
  );
}

function recordedPath(path: string): string {
  return path === '-' ? path : resolve(path);
}

function stdinError({ name, format }: KnownBatch): MgwError {
  const words = ['-', ...(format === undefined ? [] : ['--format', format]), '--name', name];
  return new MgwError(
    'usage',
    `The rows of the batch ${name} were read from standard input. Pipe the same rows to the command, and replace the batch's name with: ${words.map(shellWord).join(' ')}`,
    { argument: { text: name, words } },
  );
}

function withLastOptions<T extends BatchOptions>(known: KnownBatch, options: T, isByName: boolean): T {
  const typedDefaults = options.default ?? [];
  const nameOf = (entry: string): string => fieldName(entry.slice(0, entry.indexOf('=')));
  const names = typedDefaults.map(nameOf);
  return {
    ...options,
    name: options.name ?? (isByName || known.isNamed ? known.name : undefined),
    default: [...known.defaults.filter((entry) => !names.includes(nameOf(entry))), ...typedDefaults],
    format: options.format ?? known.format,
    allowFiles: options.allowFiles ?? known.allowFiles,
    ignoreColumns: options.ignoreColumns ?? known.ignoreColumns,
    // Stored objects have no sidecar files, so the last run's --sidecar applies only to local files.
    sidecar: options.sidecar ?? (isObjectUrl(options.output ?? '') ? undefined : known.sidecar),
  };
}

/**
 * Returns the last `--budget` of a batch, from any machine with the same ledger; undefined if none was set.
 * @throws MgwError('local_io') if the budget cannot be read; MgwError('unreachable').
 */
export async function lastBudget(context: Context, batch: string): Promise<string | undefined> {
  const { limit } = await budgetState(context, 'batch', batch);
  return limit && formatDecimal(limit.amount);
}

/** Returns the options with the batch's last budget unless they set one. Prints a note if they do not. */
export async function withLastBudget<T extends BatchOptions>(
  context: Context,
  { options, batch }: NamedBatch<T>,
): Promise<T> {
  if (options.budget !== undefined) return options;
  const budget = await lastBudget(context, batch.name);
  if (budget === undefined) return options;
  context.progress.note(`Using the batch's last --budget: ${budget}.`);
  return { ...options, budget };
}

/**
 * Records `--budget`, so that later runs and workers on all machines have the same limit. Does nothing if it was not
 * given. Workers that are running the batch reopen it with the new limit.
 */
export async function rememberBudget(
  context: Context,
  batch: string,
  { budget }: BatchOptions,
): Promise<void> {
  if (budget === undefined) return;
  await (await context.budget('batch', batch)).setLimit({ amount: parseAmount(budget) });
  const fleet = fleetStateOf(await context.ledger());
  if (fleet === undefined) return;
  const { changeBatch } = await import('../../../batch/fleet/row-queue.ts');
  await changeBatch(fleet.query, batch, { budget });
}

/** Prints a note if the batch's last run used a different file. */
export async function noteOtherFile(context: Context, { manifest, name }: Batch): Promise<void> {
  const previous = await recallBatch(ledgerFolder(await context.settings()), name);
  if (previous === undefined || previous.file === recordedPath(manifest.path)) return;
  const source = previous.file === '-' ? 'standard input' : `a different file, ${previous.file}`;
  context.progress.note(
    `The batch ${name} was last run from ${source}. Rows with the same id are the same jobs.`,
  );
}

/** Records the options of a run, which {@link openNamed} uses as defaults. */
export async function rememberOptions(
  context: Context,
  batch: Batch & { isPlaceGiven?: boolean },
  options: BatchOptions,
): Promise<void> {
  const { manifest, name, place, isPlaceGiven } = batch;
  await noteOtherFile(context, batch);
  const [file, output] = [
    recordedPath(manifest.path),
    isObjectUrl(place.folder) ? `${place.folder}${place.template}` : join(place.folder, place.template),
  ];
  const folder = ledgerFolder(await context.settings());
  const record = {
    name,
    isNamed: options.name !== undefined,
    file,
    format: options.format,
    output,
    written: isPlaceGiven ? null : (manifest.head.output ?? ''),
    defaults: options.default ?? [],
    allowFiles: (options.allowFiles ?? []).map((each) => resolve(each)),
    ignoreColumns: options.ignoreColumns ?? [],
    sidecar: options.sidecar,
  };
  // Records nothing if a value contains the API key.
  const text = JSON.stringify(record);
  if (context.redact(text) !== text) return;
  await rememberBatch(folder, record).catch((error: unknown) =>
    context.progress.note(`Could not record the batch's options: ${messageOf(error)}`),
  );
}
