import { basename, dirname, extname, parse, relative, resolve, sep } from 'node:path';
import { placeholderOf, storedNames } from '../../../batch/chains.ts';
import { canBeCached, DoneRowCache } from '../../../batch/done-row-cache.ts';
import { type KnownBatch, pathOfBatch } from '../../../batch/known-batches.ts';
import { type Manifest, openManifest } from '../../../batch/manifest/manifest.ts';
import { variableName } from '../../../batch/manifest/fields.ts';
import { parseDefaults, type Row } from '../../../batch/manifest/row.ts';
import { namesIn } from '../../../batch/manifest/template.ts';
import type { Batch, PlanDeps } from '../../../batch/plan.ts';
import { isSpeech, kindOf, modelOf, type Work } from '../../../batch/planned-row.ts';
import { references } from '../../../batch/row-graph.ts';
import { retryUnlessLost } from '../../../batch/row-state.ts';
import type { BatchOptions } from './options.ts';
import { readableFolders, rowComposer } from './row-work.ts';
import type { Context } from '../../context.ts';
import { readStdinBytes } from '../../io.ts';
import { type Decimal, parseDecimal } from '../../../decimal.ts';
import { messageOf, MgwError, usageError } from '../../../errors.ts';
import { type EarlierAsset, earlierAsset, partOf, recordedAssets } from '../../../flows/earlier-job.ts';
import { type Listing, oneListing } from '../../../flows/models.ts';
import { protocolOfModel } from '../../../flows/model-protocol.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { priceOf } from '../../../flows/prices.ts';
import { outputPlace, type OutputPlace } from '../../../jobs/output.ts';
import { isObject } from '../../../json.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import { isObjectUrl } from '../../../store-url.ts';
import { checkNoSecret } from '../../../jobs/order.ts';
import { isKeyName, keyNameRules } from '../../../jobs/ref.ts';
import { printableLine } from '../../../printable.ts';
import { version } from '../../../installation.ts';

/**
 * Opens a batch's manifest. Options on the command line override those of a YAML manifest.
 * @throws MgwError('usage') if there is no such file, or the name or output is invalid.
 */
export async function openBatch(
  context: Context,
  file: string,
  options: BatchOptions,
  known?: KnownBatch,
): Promise<Batch & { isPlaceGiven: boolean }> {
  const ignored = (options.ignoreColumns ?? []).flatMap((names) => names.split(','));
  const columns = new Set([...ignored.map(variableName), ...namesIn(options.output ?? known?.output ?? '')]);
  const listing = oneListing(context);
  const manifest = await openManifest(file, {
    commandDefaults: parseDefaults(options.default ?? [], columns),
    format: options.format,
    content: file === '-' ? await readStdinBytes(context.io, stdinAdvice) : undefined,
    columns,
    kindOf: async (model) => (await protocolOfModel(context, model, listing, { dryRun: true })).name,
  });
  for (const note of manifest.notes ?? []) context.progress.note(note);
  const output = options.output ?? lastOutput(manifest, known);
  const batch = batchOf(manifest, nameOf(file, options.name ?? manifest.head.name), { ...options, output });
  const isFromManifest =
    options.output === undefined && known?.written !== null && manifest.head.output !== undefined;
  const isPlaceGiven = options.output !== undefined || (output !== undefined && known?.written === null);
  const place = isFromManifest ? manifestPlace(batch.place, file) : batch.place;
  return {
    ...batch,
    place,
    readable: await readableFolders(file === '-' ? undefined : file, options.allowFiles),
    isPlaceGiven,
  };
}

const stdinAdvice = ' Save the manifest to a file and pass the file instead.';

// A manifest may be untrusted, so its output must be below the current folder or the manifest's folder. `root` also
// prevents the output from leading elsewhere through a symbolic link.
function manifestPlace(place: OutputPlace, file: string): OutputPlace {
  const folders = file === '-' ? ['.'] : ['.', dirname(file)];
  const isBelow = (root: string): boolean =>
    parse(root).root !== root &&
    relative(root, place.folder)
      .split(sep)
      .every((step) => !step.startsWith('.'));
  const root = folders.map((folder) => resolve(folder)).find(isBelow);
  if (root !== undefined && !isObjectUrl(place.folder)) return { ...place, root };
  throw usageError(
    `output: ${printableLine(place.folder, 200)} is outside the current folder and the manifest's folder. Change it, or set the output with -o.`,
  );
}

// Returns the output of the last run. Returns undefined if the manifest's output has changed since then, because the
// new output takes precedence.
function lastOutput({ head }: Manifest, known: KnownBatch | undefined): string | undefined {
  const isUnchanged = known?.written === null || known?.written === (head.output ?? '');
  return isUnchanged ? known?.output : undefined;
}

/** Returns the batch of an open manifest. @throws MgwError('usage') if the output template is invalid. */
export function batchOf(manifest: Manifest, name: string, { output, force = false }: BatchOptions): Batch {
  return { manifest, name, place: placeOf(output ?? manifest.head.output), force, readable: [] };
}

function nameOf(file: string, typedName: string | undefined): string {
  if (file === '-' && typedName === undefined)
    throw usageError(
      'A manifest from standard input requires --name, because job keys contain the batch name.',
    );
  const name = typedName ?? basename(file, extname(file)).trim().replace(/\s+/g, '-');
  if (isKeyName(name)) return name;
  const subject = typedName === undefined ? 'The file name cannot be used as the batch name' : '--name';
  throw usageError(
    `${subject}: ${printableLine(name, 60)} is not allowed; allowed: ${keyNameRules}. Use --name.`,
  );
}

/** Parses a batch's output template. @throws MgwError('usage') if it is invalid. */
export function placeOf(template: string | undefined, hasColumns = true): OutputPlace {
  try {
    return outputPlace(template, hasColumns);
  } catch (error) {
    throw usageError(`--output: ${messageOf(error)}.`);
  }
}

/**
 * Returns the dependencies for planning a batch.
 * @param mode `known` if done rows only need to be counted; `offline` as in {@link rowComposer}
 * @param listing the model list, if it is shared with other plans
 */
export async function planDepsOf(
  context: Context,
  batch: Batch,
  mode?: 'known' | 'offline',
  listing?: Listing,
): Promise<PlanDeps> {
  const { ledger, gateway, account, redact } = await context.jobDeps();
  const settings = await context.settings();
  const compose = rowComposer(context, batch, mode === 'offline', listing);
  checkNoSecret('--name', batch.name, redact);
  const costOf = (work: Work): Decimal | undefined => {
    const { cost } = priceOf({ protocol: kindOf(work), model: modelOf(work), body: work.body }, settings);
    return cost && parseDecimal(cost.at_most);
  };
  return {
    ledger,
    gateway,
    account,
    redact,
    workOf: (row, inputs) => {
      checkNoSecret('id', row.id, redact);
      return compose(row, inputs).catch((error: unknown) =>
        composeAsPaid(row, inputs, { context, ledger, compose, name: batch.name }, error),
      );
    },
    assetsOf: (job, part) => recordedAssets(context, job, part),
    costOf,
    known: mode === 'known' ? await doneRowCacheOf(context, batch, { gateway, account }) : undefined,
  };
}

// Composes a paid row whose input was removed, with the name of the input in the row's job.
// Throws `error` if the row was not paid for.
async function composeAsPaid(
  row: Row,
  inputs: ReadonlyMap<string, EarlierAsset> = new Map(),
  { context, ledger, compose, name }: PaidRowDeps,
  error: unknown,
): Promise<Work> {
  if (!(error instanceof MgwError) || error.code !== 'usage' || row.id === undefined) throw error;
  const job = (await retryUnlessLost(ledger, `${name}/${row.id}`))?.job;
  if (job?.handle === undefined || !isObject(job.request)) throw error;
  const missing = new Map<string, EarlierAsset>();
  for (const { ref, field } of references(row).filter((each) => !inputs.has(each.ref)))
    await earlierAsset(context, ref, field, false).catch(() =>
      missing.set(ref, placeholderOf({ ref, id: ref, part: partOf(ref, field) })),
    );
  const work = await compose(row, new Map([...inputs, ...missing]));
  if (missing.size === 0 || isSpeech(work)) throw error;
  const [own, paid] = [storedNames(work, work.body), storedNames(work, job.request)];
  if (own.length !== paid.length) throw error;
  const fail = (): Promise<never> => Promise.reject(error);
  const paidInputs = [...missing].map(([ref, placeholder]) => {
    const asset = { name: paid[own.indexOf(placeholder.name)] ?? placeholder.name, find: fail, read: fail };
    return [ref, asset] as const;
  });
  return compose(row, new Map([...inputs, ...paidInputs]));
}

interface PaidRowDeps {
  context: Context;
  ledger: Ledger;
  compose: PlanDeps['workOf'];
  /** The batch's name. */
  name: string;
}

// Opens the cache of done rows. A cache is valid only for the same `dependencies`: everything that affects a row
// besides its own fields.
async function doneRowCacheOf(
  context: Context,
  { name, place, manifest: { defaults } }: Batch,
  { gateway, account }: Pick<PlanDeps, 'gateway' | 'account'>,
): Promise<DoneRowCache | undefined> {
  const settings = await context.settings();
  const { ttsSpeaker, ttsFormat, ttsSampleRate, videoDefaults } = settings;
  const speech = [ttsSpeaker.value, ttsFormat.value, ttsSampleRate.value];
  const dependencies = [version, gateway, account, name, place, defaults, speech, videoDefaults];
  if (!canBeCached(defaults)) return undefined;
  return DoneRowCache.open(pathOfBatch(ledgerFolder(settings), name), dependencies, place);
}
