import { resolve } from 'node:path';
import { deadlineIn } from '../clock.ts';
import { MgwError, usageError } from '../errors.ts';
import { type ComposedVideo, composeVideo } from '../flows/compose-video.ts';
import { type Listing, oneListing } from '../flows/models.ts';
import { protocolOfModel } from '../flows/model-protocol.ts';
import { type PriceQuery, priceOf } from '../flows/prices.ts';
import { submitVideo } from '../flows/submit-video.ts';
import { fileNamedBy, type FlagValue, longName } from '../protocols/compose.ts';
import { isLocalPath, type Flag, type Protocol } from '../protocols/protocol.ts';
import { protocolNamed } from '../protocols/registry.ts';
import { composeSpeech } from '../speech/compose.ts';
import { speechModel } from '../speech/wire.ts';
import type { Call } from './calls.ts';
import { type PaymentRequest, type Arguments, pay } from './paying.ts';
import { agentText, type ToolOutcome, freeSuccess } from './result.ts';
import type { ReadFile, Tools } from './tool.ts';

// The maximum time for retrying a refused submission, in ms. The tool call is answered earlier, while the retries
// continue.
const maxSubmissionMs = 10 * 60_000;

/** Implements the `submit_video` tool. */
export async function runSubmitVideo(
  { key, ...args }: Arguments & { key: string },
  call: Call,
  tools: Tools,
): Promise<ToolOutcome> {
  const { video, query } = await composeFromArguments(call, tools, args);
  const submission = {
    ask: 'accept',
    force: false,
    fresh: false,
    sidecar: false,
    key,
    blockedByAnyDoubt: call.deadline,
    deadline: deadlineIn(maxSubmissionMs, tools.session.clock),
  } as const;
  const request: PaymentRequest = {
    tool: 'submit_video',
    key,
    args: { key, ...args },
    absoluteArgs: { key, ...withAbsolutePaths(args, video.protocol, tools) },
    order: query,
    flow: (deps) => submitVideo(video, submission, deps),
    next: ({ id }) => ({ tool: 'wait', arguments: { refs: [id] } }),
  };
  return pay(request, call, tools);
}

/** Implements the `price` tool. */
export async function runPrice({ text, ...args }: Arguments, call: Call, tools: Tools): Promise<ToolOutcome> {
  const settings = await tools.session.settings();
  let query: PriceQuery;
  if (typeof text === 'string') {
    if (Object.keys(args).length > 0)
      throw usageError('text cannot be combined with the arguments of submit_video.');
    query = { protocol: 'tts', model: speechModel, body: composeSpeech(text, undefined, {}, settings).body };
  } else {
    const { video, query: videoQuery } = await composeFromArguments(call, tools, args);
    if (video.fault !== undefined) throw video.fault;
    query = videoQuery;
  }
  const { cost, subject: what } = priceOf(query, settings);
  return { ...freeSuccess, next: null, what, cost: cost ?? 'unknown', budgets: await tools.authority.view() };
}

// Composes a video from a tool's arguments, and adds the notes about it to the call. Throws a usage error that names
// the wrong arguments.
async function composeFromArguments(
  call: Call,
  tools: Tools,
  { protocol: named, ...args }: Arguments,
): Promise<{ video: ComposedVideo; query: PriceQuery }> {
  const listing = oneListing(tools.session);
  const protocol = await chooseProtocol(tools, listing, named, args['model']);
  const flags: Record<string, FlagValue> = {};
  for (const [name, value] of Object.entries(args)) {
    if (value === undefined) continue;
    const flag = protocol.flags.find((each) => longName(each) === name);
    if (flag === undefined)
      throw usageError(
        `Videos of Protocol ${protocol.name.toUpperCase()} do not accept the argument ${name}.`,
      );
    flags[name] = await flagValue(tools, flag, name, value);
  }
  const readLocalFile: ReadFile = (path, name) => readBelow(tools, path, name);
  const { video, defaults } = await composeVideo(tools.session, protocol, { flags, readLocalFile }, listing);
  call.notes.push(...[...video.advice, defaults ?? ''].filter(Boolean).map(agentText));
  const { body } = video;
  return { video, query: { protocol: video.protocol.name, model: video.protocol.modelOf(body), body } };
}

function withAbsolutePaths(args: Arguments, { flags }: Protocol, { root }: Tools): Arguments {
  const absolute = (value: unknown): unknown =>
    typeof value === 'string' && isLocalPath(value) ? resolve(root.path, value) : value;
  const isFile = (name: string): boolean =>
    flags.some((flag) => longName(flag) === name && (flag.isAsset === true || flag.kind === 'file'));
  const entries = Object.entries(args).map(([name, value]) => {
    if (!isFile(name)) return [name, value] as const;
    return [name, Array.isArray(value) ? value.map(absolute) : absolute(value)] as const;
  });
  return Object.fromEntries(entries);
}

async function chooseProtocol(
  { session }: Tools,
  listing: Listing,
  protocolArgument: unknown,
  model: unknown,
): Promise<Protocol> {
  if (typeof protocolArgument === 'string') return protocolNamed(protocolArgument);
  if (typeof model !== 'string')
    throw usageError('model is required; call models to list the models that the key can use.');
  return protocolOfModel(session, model, listing).catch((error: unknown) => {
    if (!(error instanceof MgwError) || error.protocols === undefined) throw error;
    throw error.with({}, `${error.message} Set protocol to one of: ${error.protocols.join(', ')}.`);
  });
}

async function flagValue(tools: Tools, flag: Flag, name: string, value: unknown): Promise<FlagValue> {
  if (flag.kind === 'switch') {
    if (typeof value === 'boolean') return value;
    throw usageError(`${name} must be true or false.`);
  }
  const texts = [value].flat().map(String);
  if (flag.kind === 'list') return texts;
  const [text = '', ...more] = texts;
  if (more.length > 0) throw usageError(`${name} must be one value.`);
  if (flag.atFile === true && text.startsWith('@'))
    throw usageError(`${name} must be the value itself, not a file.`);
  return fileNamedBy(flag, text) === undefined ? text : readBelow(tools, text, name);
}

async function readBelow({ root, readFile }: Tools, path: string, name: string): Promise<Uint8Array> {
  return readFile(await root.file(path, name), name);
}
