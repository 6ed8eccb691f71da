import type { Readable } from 'node:stream';
import { basename, extname, relative } from 'node:path';
import { canBeCached, DoneRowCache } from '../../../batch/done-row-cache.ts';
import { type KnownBatch, pathOfBatch } from '../../../batch/known-batches.ts';
import { type Manifest, openManifest } from '../../../batch/manifest/manifest.ts';
import { variableName } from '../../../batch/manifest/fields.ts';
import { givenDefaults } from '../../../batch/manifest/row.ts';
import { namesIn } from '../../../batch/manifest/template.ts';
import type { Batch, PlanDeps } from '../../../batch/plan.ts';
import { kindOf, modelOf, type Work } from '../../../batch/work.ts';
import type { BatchOptions } from './options.ts';
import { readableFolders } from './row-files.ts';
import { rowComposer } from './row-work.ts';
import type { Context } from '../../context.ts';
import { type Decimal, parseDecimal } from '../../../decimal.ts';
import { messageOf, usageError } from '../../../errors.ts';
import { recordedAssets } from '../../../flows/earlier-job.ts';
import { oneListing } from '../../../flows/listing.ts';
import { protocolOfModel } from '../../../flows/model-protocol.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import { priceOf } from '../../../flows/prices.ts';
import { outputPlace, type OutputPlace } from '../../../jobs/output-template.ts';
import { isObjectUrl } from '../../../store-url.ts';
import { checkHoldsNoSecret, isKeyName, keyNameForm } from '../../../key-name.ts';
import { printableLine } from '../../../printable.ts';
import { version } from '../../../version.ts';

/**
 * Opens the manifest of a batch; the command line wins over what a manifest in YAML says.
 * @throws MgwError('usage') if there is no such file, or its name or place cannot be one.
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
    given: givenDefaults(options.default ?? [], columns),
    format: options.format,
    content: file === '-' ? await readManifest(context.io.stdin) : undefined,
    columns,
    kindOf: async (model) => (await protocolOfModel(context, model, listing, { dryRun: true })).name,
  });
  for (const note of manifest.notes ?? []) context.progress.note(note);
  const output = options.output ?? lastOutput(manifest, known);
  const batch = batchOf(manifest, nameOf(file, options.name ?? manifest.head.name), { ...options, output });
  const isOwn = options.output === undefined && known?.written !== null && manifest.head.output !== undefined;
  const isPlaceGiven = options.output !== undefined || (output !== undefined && known?.written === null);
  const place = isOwn ? insideCurrent(batch.place) : batch.place;
  return {
    ...batch,
    place,
    readable: await readableFolders(file === '-' ? undefined : file, options.allowFiles),
    isPlaceGiven,
  };
}

/** The most that is read from standard input: it is read more than once, so it is kept. */
const maxStdinBytes = 64 * 1024 * 1024;

async function readManifest(stdin: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stdin as AsyncIterable<Buffer>) {
    chunks.push(Buffer.from(chunk));
    size += chunk.length;
    if (size > maxStdinBytes)
      throw usageError('Standard input has more than 64 MiB: save the manifest to a file, and name that.');
  }
  return Buffer.concat(chunks);
}

// The manifest may come from a stranger, with a folder in which its output is a symbolic link.
function insideCurrent(place: OutputPlace): OutputPlace {
  if (isObjectUrl(place.folder)) return place;
  const isBelow = !relative(process.cwd(), place.folder).startsWith('..');
  return isBelow ? { ...place, root: process.cwd() } : place;
}

// An output that was edited in the manifest since wins over that of the last run.
function lastOutput({ head }: Manifest, known: KnownBatch | undefined): string | undefined {
  const isAsItWas = known?.written === null || known?.written === (head.output ?? '');
  return isAsItWas ? known?.output : undefined;
}

/** A batch of a manifest that is open. @throws MgwError('usage') if its files cannot go where they should. */
export function batchOf(manifest: Manifest, name: string, { output, force = false }: BatchOptions): Batch {
  return { manifest, name, place: placeOf(output ?? manifest.head.output), force, readable: [] };
}

function nameOf(file: string, given: string | undefined): string {
  if (file === '-' && given === undefined)
    throw usageError('A manifest from standard input needs --name: it names the jobs of its rows.');
  const name = given ?? basename(file, extname(file)).trim().replace(/\s+/g, '-');
  if (isKeyName(name)) return name;
  const what = given === undefined ? 'The name of the file cannot name the batch' : '--name';
  throw usageError(
    `${what}: ${printableLine(name, 60)} is not allowed; allowed: ${keyNameForm}. Give --name.`,
  );
}

/** Where the files of a batch go. @throws MgwError('usage') if the template is wrong. */
export function placeOf(template: string | undefined): OutputPlace {
  try {
    return outputPlace(template, true);
  } catch (error) {
    throw usageError(`--output: ${messageOf(error)}.`);
  }
}

/**
 * Returns what a plan of a batch is made with.
 * @param mode `known` if the rows that are done need only be counted, `offline` if nothing will be sent
 */
export async function planDepsOf(
  context: Context,
  batch: Batch,
  mode?: 'known' | 'offline',
): Promise<PlanDeps> {
  const { ledger, gateway, account, redact } = await context.jobDeps();
  const settings = await context.settings();
  const compose = rowComposer(context, batch, mode === 'offline');
  checkHoldsNoSecret('--name', batch.name, redact);
  const costOf = (work: Work): Decimal | undefined => {
    const { cost } = priceOf({ protocol: kindOf(work), model: modelOf(work), body: work.body }, settings);
    return cost && parseDecimal(cost.at_most);
  };
  return {
    ledger,
    gateway,
    account,
    workOf: (row, inputs) => {
      checkHoldsNoSecret('id', row.id, redact);
      return compose(row, inputs);
    },
    assetsOf: (job, part) => recordedAssets(context, job, part),
    costOf,
    known: mode === 'known' ? await doneRowCacheOf(context, batch, { gateway, account }) : undefined,
  };
}

// All that rows depend on apart from what they say themselves.
async function doneRowCacheOf(
  context: Context,
  { name, place, manifest: { defaults } }: Batch,
  { gateway, account }: Pick<PlanDeps, 'gateway' | 'account'>,
): Promise<DoneRowCache | undefined> {
  const settings = await context.settings();
  const { ttsSpeaker, ttsFormat, ttsSampleRate, videoDefaults } = settings;
  const speech = [ttsSpeaker.value, ttsFormat.value, ttsSampleRate.value];
  const about = [version, gateway, account, name, place, defaults, speech, videoDefaults];
  if (!canBeCached(defaults)) return undefined;
  return DoneRowCache.open(pathOfBatch(ledgerFolder(settings), name), about, place);
}
