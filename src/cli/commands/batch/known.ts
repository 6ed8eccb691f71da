import { extname, join, resolve } from 'node:path';
import { type KnownBatch, recallBatch, rememberBatch } from '../../../batch/known-batches.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { fieldName } from '../../../batch/manifest/fields.ts';
import type { Batch } from '../../../batch/plan.ts';
import { messageOf, usageError } from '../../../errors.ts';
import { printableLine } from '../../../printable.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Context } from '../../context.ts';
import { batchOf, openBatch } from './open.ts';
import type { BatchOptions } from './options.ts';

/** A batch that a command line names. */
export interface NamedBatch<T> {
  /** The file of the batch, or the name of an enqueued batch. */
  file: string;
  options: T;
  batch: Batch;
  /** Whether the rows come from the queue. */
  isQueued: boolean;
}

/**
 * Opens a batch by its file, or by its name if it was enqueued or was run here before. Options that the command line
 * does not give have the values of the last run (design 13).
 * @throws MgwError('usage') if there is no such batch, or its file cannot be read.
 */
export async function openNamed<T extends BatchOptions>(
  context: Context,
  given: string,
  asked: T,
): Promise<NamedBatch<T>> {
  const fleet = isPath(given) ? undefined : fleetStateOf(await context.ledger());
  if (fleet !== undefined) {
    const { queuedManifest } = await import('../../../batch/fleet/queued-row.ts');
    const manifest = await queuedManifest(fleet.query, given);
    if (manifest !== undefined) {
      const batch = batchOf(manifest, given, asked);
      return { file: given, options: asked, batch, isQueued: true };
    }
  }
  const known = await knownOf(context, given, asked);
  const file = known !== undefined && !isPath(given) ? known.file : given;
  const options = known === undefined ? asked : asInLastRun(known, asked, !isPath(given));
  return { file, options, batch: await openBatch(context, file, options, known), isQueued: false };
}

function isPath(given: string): boolean {
  return given === '-' || extname(given) !== '' || /[\\/]/.test(given);
}

async function knownOf(
  context: Context,
  given: string,
  { name }: BatchOptions,
): Promise<KnownBatch | undefined> {
  const folder = ledgerFolder(await context.settings());
  if (given === '-') return undefined;
  if (isPath(given)) {
    const known = await recallBatch(folder, name ?? resolve(given));
    return known?.file === resolve(given) ? known : undefined;
  }
  const known = await recallBatch(folder, given);
  if (known !== undefined) return known;
  throw usageError(`No batch named ${printableLine(given, 100)} was run here. Give its file.`, [
    'mgw',
    'batch',
    'ls',
  ]);
}

function asInLastRun<T extends BatchOptions>(known: KnownBatch, options: T, isByName: boolean): T {
  const given = options.default ?? [];
  const nameOf = (entry: string): string => fieldName(entry.slice(0, entry.indexOf('=')));
  const names = given.map(nameOf);
  return {
    ...options,
    name: options.name ?? (isByName || known.isNamed ? known.name : undefined),
    default: [...known.defaults.filter((entry) => !names.includes(nameOf(entry))), ...given],
    allowFiles: options.allowFiles ?? known.allowFiles,
    ignoreColumns: options.ignoreColumns ?? known.ignoreColumns,
    budget: options.budget ?? known.budget,
    // An object gets no sidecar.
    sidecar: options.sidecar ?? (isObjectUrl(options.output ?? '') ? undefined : known.sidecar),
  };
}

/** Returns the budget of a batch, with a note if it is that of the last run. */
export function budgetOf(
  { progress }: Context,
  asked: BatchOptions,
  { options, batch }: NamedBatch<BatchOptions>,
): string | undefined {
  if (asked.budget === undefined && options.budget !== undefined)
    progress.note(`Using --budget ${options.budget} of the last run.`);
  return options.budget ?? batch.manifest.head.budget;
}

/** Records the options of a run, for {@link openNamed}. */
export async function remember(
  context: Context,
  { manifest, name, place, isPlaceGiven }: Batch & { isPlaceGiven?: boolean },
  options: BatchOptions,
): Promise<void> {
  if (manifest.path === '-') return;
  const [file, output] = [
    resolve(manifest.path),
    isObjectUrl(place.folder) ? `${place.folder}${place.template}` : join(place.folder, place.template),
  ];
  const folder = ledgerFolder(await context.settings());
  const before = await recallBatch(folder, name);
  if (before !== undefined && before.file !== file)
    context.progress.note(
      `The batch ${name} was last run from another file, ${before.file}. Rows with the same id count as the same rows.`,
    );
  const known = {
    name,
    isNamed: options.name !== undefined,
    file,
    output,
    written: isPlaceGiven ? null : (manifest.head.output ?? ''),
    defaults: options.default ?? [],
    allowFiles: (options.allowFiles ?? []).map((each) => resolve(each)),
    ignoreColumns: options.ignoreColumns ?? [],
    budget: options.budget,
    sidecar: options.sidecar,
  };
  // Records nothing if a value contains the API key.
  const text = JSON.stringify(known);
  if (context.redact(text) !== text) return;
  await rememberBatch(folder, known).catch((error: unknown) =>
    context.progress.note(`Could not record the options of the batch: ${messageOf(error)}`),
  );
}
