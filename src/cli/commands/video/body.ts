import { usageError } from '../../../errors.ts';
import {
  composeVideo,
  type BodyParts,
  type ComposedVideo,
  type Listing,
} from '../../../flows/compose-video.ts';
import type { JsonObject } from '../../../json.ts';
import { compose } from '../../../protocols/compose.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { optionObject, optionText } from '../../body-option.ts';
import type { Context } from '../../context.ts';
import { readLine } from '../../prompt.ts';
import { readStdin } from '../../stdin.ts';
import { givenFlags } from './flags.ts';

/** The options that a body is made of, apart from the protocol's own flags. */
export interface BodyOptions extends Pick<BodyParts, 'set' | 'check' | 'dryRun' | 'endpoint'> {
  /** The body itself, or the argument of `--body`. */
  body?: string | JsonObject | undefined;
}

/**
 * Composes a video from prompt, flags, `--body`, `--set` and the configured defaults, and checks it.
 * @throws MgwError('usage') naming every flag that is wrong, before anything is sent.
 */
export async function composedVideo(
  context: Context,
  protocol: Protocol,
  prompt: string | undefined,
  options: BodyOptions,
  listing?: Listing,
): Promise<{ video: ComposedVideo; advice: string[] }> {
  const flags = await givenFlags(protocol, { ...options });
  if (prompt !== undefined && flags['prompt'] !== undefined)
    throw usageError('Give PROMPT or --prompt, not both.');
  if (prompt === '-' && options.body === '@-')
    throw usageError('PROMPT and --body cannot both be standard input.');
  if (prompt !== undefined) flags['prompt'] = prompt === '-' ? await promptFromStdin(context) : prompt;
  const { set, check, dryRun, endpoint } = options;
  const parts = { body: await givenBody(context, options.body), flags, set, check, dryRun, endpoint };
  return composeVideo(context, protocol, parts, listing);
}

/**
 * Asks for the prompt of a submission that needs one and has none: on a terminal, or from a pipe. Undefined if nothing may
 * be asked (`--no-input`, CI): a pipe there often belongs to something else, such as the rest of the script.
 */
export async function missingPrompt(
  context: Context,
  protocol: Protocol,
  options: BodyOptions,
): Promise<string | undefined> {
  const { io } = context;
  const { noInput, defaultsFor } = await context.settings();
  if (noInput.value || options.body !== undefined || options.check === false) return undefined;
  const input = { flags: await givenFlags(protocol, { ...options }), set: options.set };
  const model = protocol.modelOf(protocol.normalise(compose(protocol, input))) ?? '';
  const defaults = defaultsFor(protocol.name, model);
  const body = protocol.normalise(compose(protocol, { ...input, defaults }));
  const faults = (await protocol.checks()).check(body);
  if (!faults.some(({ flag, value }) => flag === '--prompt' && value === '')) return undefined;
  if (io.stdin.isTTY === true) return (await readLine(io, 'Prompt: ')).trim() || undefined;
  context.progress.note('Reading the prompt from standard input.');
  return (await readStdin(io)).replace(/\r?\n$/, '') || undefined;
}

async function promptFromStdin(context: Context): Promise<string> {
  const text = (await readStdin(context.io)).replace(/\r?\n$/, '');
  if (text === '') throw usageError('PROMPT -: standard input is empty.');
  return text;
}

async function givenBody(
  context: Context,
  source: string | JsonObject | undefined,
): Promise<JsonObject | undefined> {
  if (typeof source !== 'string') return source;
  return optionObject(await optionText(context, source, '--body'), '--body');
}
