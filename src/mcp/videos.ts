import { resolve } from 'node:path';
import { deadlineIn } from '../clock.ts';
import { usageError } from '../errors.ts';
import { composeVideo } from '../flows/compose-video.ts';
import { type Listing, oneListing } from '../flows/models.ts';
import { protocolOfModel } from '../flows/model-protocol.ts';
import { type PriceQuery, priceOf } from '../flows/prices.ts';
import { submitVideo } from '../flows/submit-video.ts';
import { recordedJob } from '../jobs/ref.ts';
import { goalOutput } from '../jobs/output.ts';
import { fileNamedBy, type FlagValue, longName } from '../protocols/compose.ts';
import { isEarlierJob, isLocalPath, type Flag, type Protocol } from '../protocols/protocol.ts';
import { protocolNamed } from '../protocols/registry.ts';
import { composeSpeech } from '../speech/compose.ts';
import { speechModel } from '../speech/wire.ts';
import { isObjectUrl } from '../store-url.ts';
import type { Call } from './calls.ts';
import { type PaymentRequest, type Given, pay } from './paying.ts';
import { agentText, type ToolOutcome, freeSuccess } from './result.ts';
import type { ReadFile, Tools } from './tool.ts';

// How long a refused submission is retried, ms. The call is answered before that.
const maxSubmissionMs = 10 * 60_000;

/** Carries out the tool `submit_video`. */
export async function submitted(
  { key, ...given }: Given & { key: string },
  call: Call,
  tools: Tools,
): Promise<ToolOutcome> {
  const { video, advice, defaults } = await composedVideo(tools, given);
  call.notes.push(...[...advice, defaults ?? ''].filter(Boolean).map(agentText));
  const { protocol, body } = video;
  const wanted = {
    ask: 'accept',
    force: false,
    fresh: false,
    sidecar: false,
    key,
    blockedByAnyDoubt: call.deadline,
    deadline: deadlineIn(maxSubmissionMs, tools.session.clock),
  } as const;
  const asked: PaymentRequest = {
    tool: 'submit_video',
    key,
    given: { key, ...given },
    typed: { key, ...withAbsolutePaths(given, protocol, tools) },
    order: { protocol: protocol.name, model: protocol.modelOf(body), body },
    flow: (deps) => submitVideo(video, wanted, deps),
    next: ({ id }) => ({ tool: 'wait', arguments: { refs: [id] } }),
  };
  return pay(asked, call, tools);
}

/** Carries out the tool `price`. */
export async function priced({ text, ...given }: Given, call: Call, tools: Tools): Promise<ToolOutcome> {
  const settings = await tools.session.settings();
  let asked: PriceQuery;
  if (typeof text === 'string') {
    if (Object.keys(given).length > 0)
      throw usageError('Give text, or the arguments of submit_video, not both.');
    asked = { protocol: 'tts', model: speechModel, body: composeSpeech(text, undefined, {}, settings).body };
  } else {
    const { video, advice, defaults } = await composedVideo(tools, given);
    call.notes.push(...[...advice, defaults ?? ''].filter(Boolean).map(agentText));
    asked = { protocol: video.protocol.name, model: video.protocol.modelOf(video.body), body: video.body };
  }
  const { cost, subject: what } = priceOf(asked, settings);
  return { ...freeSuccess, next: null, what, cost: cost ?? 'unknown', budgets: await tools.authority.view() };
}

/** Returns a video composed from the arguments. @throws MgwError('usage') naming everything that is wrong. */
export async function composedVideo(
  tools: Tools,
  { protocol: named, ...given }: Given,
): ReturnType<typeof composeVideo> {
  const listing = oneListing(tools.session);
  const protocol = await chosenProtocol(tools, listing, named, given['model']);
  const flags: Record<string, FlagValue> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const flag = protocol.flags.find((each) => longName(each) === name);
    if (flag === undefined)
      throw usageError(`${name} is not an argument of a video of Protocol ${protocol.name.toUpperCase()}.`);
    flags[name] = await flagValue(tools, flag, name, value);
  }
  const readLocalFile: ReadFile = (path, name) => readBelow(tools, path, name);
  return composeVideo(tools.session, protocol, { flags, readLocalFile }, listing);
}

function withAbsolutePaths(given: Given, { flags }: Protocol, { root }: Tools): Given {
  const absolute = (value: unknown): unknown =>
    typeof value === 'string' && isLocalPath(value) ? resolve(root.path, value) : value;
  const isFile = (name: string): boolean =>
    flags.some((flag) => longName(flag) === name && (flag.isAsset === true || flag.kind === 'file'));
  const entries = Object.entries(given).map(([name, value]) => {
    if (!isFile(name)) return [name, value] as const;
    return [name, Array.isArray(value) ? value.map(absolute) : absolute(value)] as const;
  });
  return Object.fromEntries(entries);
}

async function chosenProtocol(
  { session }: Tools,
  listing: Listing,
  named: unknown,
  model: unknown,
): Promise<Protocol> {
  if (typeof named === 'string') return protocolNamed(named);
  if (typeof model !== 'string') throw usageError('model: missing; models lists those that the key may use.');
  return protocolOfModel(session, model, listing);
}

async function flagValue(tools: Tools, flag: Flag, name: string, value: unknown): Promise<FlagValue> {
  if (flag.kind === 'switch') {
    if (typeof value === 'boolean') return value;
    throw usageError(`${name}: give true or false.`);
  }
  const texts = [value].flat().map(String);
  if (flag.isAsset === true)
    for (const each of texts) if (isEarlierJob(each)) await checkPlaceOf(each, name, tools);
  if (flag.kind === 'list') return texts;
  const [text = '', ...more] = texts;
  if (more.length > 0) throw usageError(`${name} takes one value.`);
  if (flag.atFile === true && text.startsWith('@'))
    throw usageError(`${name}: give the value itself; a file is not read.`);
  return fileNamedBy(flag, text) === undefined ? text : readBelow(tools, text, name);
}

async function readBelow({ root, readFile }: Tools, path: string, name: string): Promise<Uint8Array> {
  return readFile(await root.file(path, name), name);
}

// The video of an earlier job is read, or saved again, only below the root.
async function checkPlaceOf(value: string, name: string, { session, root }: Tools): Promise<void> {
  const { keyIn } = await import('../flows/earlier-job.ts');
  const key = keyIn(value);
  const job = await recordedJob(await session.ledger(), key.startsWith('job_') ? key : `@${key}`);
  const paths = [...job.files.map(({ path }) => path), goalOutput(job)];
  for (const path of paths) if (path !== undefined && !isObjectUrl(path)) await root.file(path, name);
}
