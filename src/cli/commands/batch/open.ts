import { basename, extname } from 'node:path';
import { canBeCached, DoneRowCache } from '../../../batch/done-row-cache.ts';
import { pathOfBatch } from '../../../batch/known-batches.ts';
import { type Manifest, openManifest } from '../../../batch/manifest/manifest.ts';
import { givenDefaults, type Row } from '../../../batch/manifest/row.ts';
import type { Batch, PlanDeps } from '../../../batch/plan.ts';
import { kindOf, modelOf, type Work } from '../../../batch/work.ts';
import type { BatchOptions } from './options.ts';
import { composedVideo } from '../video/body.ts';
import type { Context } from '../../context.ts';
import { readInputText } from '../../input.ts';
import { type Decimal, parseDecimal } from '../../../decimal.ts';
import { messageOf, usageError } from '../../../errors.ts';
import { listedModels, type Listing } from '../../../flows/compose-video.ts';
import { ledgerFolder } from '../../../flows/places.ts';
import { priceOf } from '../../../flows/prices.ts';
import { fixedExtension, outputPlace, type OutputPlace } from '../../../jobs/output-template.ts';
import { isKeyName, keyNameForm } from '../../../key-name.ts';
import { printableLine } from '../../../printable.ts';
import type { Model } from '../../../protocols/model.ts';
import { protocolNamed } from '../../../protocols/named.ts';
import type { ListingUse, Protocol } from '../../../protocols/protocol.ts';
import { composeSpeech } from '../../../speech/compose.ts';
import { version } from '../../../version.ts';

/**
 * Opens the manifest of a batch; the command line wins over what a manifest in YAML says.
 * @throws MgwError('usage') where there is no such file, or its name or place cannot be one.
 */
export async function openBatch(file: string, options: BatchOptions): Promise<Batch> {
  const manifest = await openManifest(file, givenDefaults(options.default ?? []));
  return batchOf(manifest, nameOf(file, options.name ?? manifest.head.name), options);
}

/** A batch of a manifest that is open. @throws MgwError('usage') where its files cannot go where they should. */
export function batchOf(manifest: Manifest, name: string, { output, force = false }: BatchOptions): Batch {
  return { manifest, name, place: placeOf(output ?? manifest.head.output), force };
}

function nameOf(file: string, given: string | undefined): string {
  const name = given ?? basename(file, extname(file));
  if (isKeyName(name)) return name;
  const what = given === undefined ? 'The name of the file cannot name the batch' : '--name';
  throw usageError(
    `${what}: ${printableLine(name, 60)} is not allowed; allowed: ${keyNameForm}. Give --name.`,
  );
}

function placeOf(template: string | undefined): OutputPlace {
  try {
    return outputPlace(template);
  } catch (error) {
    throw usageError(`--output: ${messageOf(error)}.`);
  }
}

/** What a plan of a batch is made with; the rows that are done need only be counted where `known` is asked for. */
export async function planDepsOf(context: Context, batch: Batch, known?: 'known'): Promise<PlanDeps> {
  const { ledger, gateway, account } = await context.jobDeps();
  const settings = await context.settings();
  const costOf = (work: Work): Decimal | undefined => {
    const { cost } = priceOf({ protocol: kindOf(work), model: modelOf(work), body: work.body }, settings);
    return cost && parseDecimal(cost.at_most);
  };
  return {
    ledger,
    gateway,
    account,
    workOf: rowComposer(context, batch.place),
    costOf,
    known: known && (await doneRowCacheOf(context, batch, { gateway, account })),
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

/** Composes and checks the rows of a batch as `video X submit` and `tts` would; the listing is asked for once. */
function rowComposer(context: Context, place: OutputPlace): (row: Row) => Promise<Work> {
  const listing = oneListing(context);
  return async (row) => {
    if (row.kind === 'tts') return speechWork(row, place, context);
    return videoWork(row, protocolNamed(row.kind), context, listing);
  };
}

async function videoWork(row: Row, protocol: Protocol, context: Context, listing: Listing): Promise<Work> {
  const { flags, set, body: given, endpoint } = row;
  const options = { ...camelCased(flags), set, body: given, endpoint };
  return (await composedVideo(context, protocol, undefined, options, listing)).video;
}

async function speechWork(row: Row, place: OutputPlace, context: Context): Promise<Work> {
  const { flags, set, text, file, output } = row;
  if (text !== undefined && file !== undefined) throw usageError('Give text or file, not both.');
  if (text === undefined && file === undefined)
    throw usageError('text: missing; needed: what is spoken, or file');
  const spoken = text ?? plain(await readInputText(file ?? '', 'file'));
  const rate = flags['sample-rate'];
  const fields = {
    set,
    ...(typeof flags['format'] === 'string' && { format: flags['format'] }),
    ...(typeof flags['speaker'] === 'string' && { speaker: flags['speaker'] }),
    ...(rate !== undefined && { sampleRate: Number(rate) }),
  };
  const target = `speech${fixedExtension(output ?? place.template)}`;
  return { protocol: 'tts', ...composeSpeech(spoken, target, fields, await context.settings()) };
}

function plain(text: string): string {
  return text.replace(/^\ufeff/, '').replace(/\r?\n$/, '');
}

function camelCased(flags: Row['flags']): Row['flags'] {
  const entries = Object.entries(flags).map(([name, value]) => [
    name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(entries) as Row['flags'];
}

function oneListing(context: Context): Listing {
  const asked = new Map<ListingUse, Promise<Model[] | undefined>>();
  let found: Model[] | undefined;
  return async (use) => {
    if (found !== undefined) return found;
    const answer = asked.get(use) ?? listedModels(context, use);
    asked.set(use, answer);
    return (found = await answer);
  };
}
