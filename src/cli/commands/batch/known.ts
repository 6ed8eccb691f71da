import { extname, join, resolve } from 'node:path';
import { recallBatch, rememberBatch } from '../../../batch/known-batches.ts';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import type { Batch } from '../../../batch/plan.ts';
import { messageOf, usageError } from '../../../errors.ts';
import { printableLine } from '../../../printable.ts';
import { ledgerFolder } from '../../../flows/places.ts';
import type { Context } from '../../context.ts';
import { batchOf, openBatch } from './open.ts';
import type { BatchOptions } from './options.ts';

/** A batch as a command line names it. */
interface NamedBatch<T> {
  /** Its file; the name of one that was enqueued. */
  file: string;
  options: T;
  batch: Batch;
  /** True where its rows come from the queue. */
  isQueued: boolean;
}

/**
 * Opens a batch by its file, or by its name: one that was enqueued, or was run here before.
 * @throws MgwError('usage') where there is none, or its file cannot be read.
 */
export async function openNamed<T extends BatchOptions>(
  context: Context,
  given: string,
  asked: T,
): Promise<NamedBatch<T>> {
  const fleet = isPath(given) ? undefined : fleetStateOf(await context.ledger());
  if (fleet !== undefined) {
    const { queuedManifest } = await import('../../../batch/fleet/queued-manifest.ts');
    const manifest = await queuedManifest(fleet.ask, given);
    if (manifest !== undefined) {
      const batch = batchOf(manifest, given, asked);
      return { file: given, options: asked, batch, isQueued: true };
    }
  }
  const { file, options } = await fileOf(context, given, asked);
  return { file, options, batch: await openBatch(file, options), isQueued: false };
}

function isPath(given: string): boolean {
  return extname(given) !== '' || /[\\/]/.test(given);
}

/**
 * The file of a batch, and how it was run last where its name is given; what the command line says wins.
 * @throws MgwError('usage') where no batch of that name was run here.
 */
async function fileOf<T extends BatchOptions>(
  context: Context,
  given: string,
  options: T,
): Promise<{ file: string; options: T }> {
  if (isPath(given)) return { file: given, options };
  const known = await recallBatch(ledgerFolder(await context.settings()), given);
  if (known === undefined)
    throw usageError(`No batch called ${printableLine(given, 100)} was run here: name its file.`);
  const { file, output, defaults } = known;
  return {
    file,
    options: { output, name: given, ...options, default: [...defaults, ...(options.default ?? [])] },
  };
}

/** Remembers how a batch is run, for {@link fileOf}. */
export async function remember(context: Context, batch: Batch, options: BatchOptions): Promise<void> {
  const { manifest, name, place } = batch;
  const [file, output] = [resolve(manifest.path), join(place.folder, place.template)];
  const folder = ledgerFolder(await context.settings());
  const before = await recallBatch(folder, name);
  if (before !== undefined && before.file !== file)
    context.progress.note(
      `The batch ${name} was run from ${before.file} before: its rows go by the same names.`,
    );
  await rememberBatch(folder, name, { file, output, defaults: options.default ?? [] }).catch(
    (error: unknown) =>
      context.progress.note(`How the batch is run could not be recorded: ${messageOf(error)}`),
  );
}
