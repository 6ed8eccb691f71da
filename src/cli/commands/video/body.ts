import { type Command, Option } from 'commander';
import type { Context } from '../../context.ts';
import { bodyOption, readInputFile, readInputText, readLine } from '../../input.ts';
import { readStdin } from '../../io.ts';
import { repeatable, single } from '../../options.ts';
import { usageError } from '../../../errors.ts';
import { type BodyParts, composeVideo } from '../../../flows/compose-video.ts';
import type { Listing } from '../../../flows/models.ts';
import { parseJson } from '../../../json.ts';
import { compose, fileNamedBy, type FlagValue, longName } from '../../../protocols/compose.ts';
import type { Flag, Protocol } from '../../../protocols/protocol.ts';
import type { Settings } from '../../../config/resolve.ts';
import type { AuthScheme, Exchange } from '../../../exchange.ts';
import { escapeControls } from '../../../printable.ts';
import { redactHeaders } from '../../../redact.ts';
import { add, formatDecimal, parseDecimal, zero } from '../../../decimal.ts';
import { currencyOf, priceOf, type PriceQuery } from '../../../flows/prices.ts';
import type { Outcome } from '../../output/outcome.ts';

/** The options that determine a body, in addition to the protocol's flags. */
export interface BodyOptions extends Pick<
  BodyParts,
  'set' | 'check' | 'dryRun' | 'endpoint' | 'checkAssets'
> {
  /** The value of `--body`. */
  body?: string | undefined;
}

/**
 * Composes a video request from the prompt, flags, `--body`, `--set` and configured defaults, and checks it.
 * @throws MgwError('usage') naming every invalid flag, before anything is sent.
 */
export async function composeFromOptions(
  context: Context,
  protocol: Protocol,
  prompt: string | undefined,
  options: BodyOptions,
  listing?: Listing,
): Promise<Awaited<ReturnType<typeof composeVideo>>> {
  const { flags, fromFiles } = await readFlags(protocol, { ...options });
  if (prompt !== undefined && flags['prompt'] !== undefined)
    throw usageError('PROMPT cannot be combined with --prompt.');
  const text = prompt ?? flags['prompt'];
  if (text === '-' && ['-', '@-'].includes(options.body ?? ''))
    throw usageError('PROMPT and --body cannot both be standard input.');
  if (text !== undefined) flags['prompt'] = text === '-' ? await promptFromStdin(context) : text;
  const { set, check, dryRun, endpoint, checkAssets } = options;
  const body = await bodyOption(context, options.body);
  if (options.body?.startsWith('@') && options.body !== '@-') fromFiles.push('body');
  const readLocalFile = (path: string, flag: string): Promise<Uint8Array> => readInputFile(path, `--${flag}`);
  const parts = { body, flags, set, fromFiles, check, dryRun, endpoint, checkAssets, readLocalFile };
  return composeVideo(context, protocol, parts, listing);
}

/**
 * Reads a missing prompt from the terminal or a pipe, if the submission requires one. Returns undefined with
 * `--no-input` and in CI, where stdin is often something else, such as the rest of the script.
 */
export async function missingPrompt(
  context: Context,
  protocol: Protocol,
  options: BodyOptions,
): Promise<string | undefined> {
  const { io } = context;
  const { noInput, defaultsFor } = await context.settings();
  if (noInput.value || options.body !== undefined || options.check === false) return undefined;
  const { flags } = await readFlags(protocol, { ...options });
  const input = { flags, set: options.set };
  const model = protocol.modelOf(protocol.normalize(compose(protocol, input))) ?? '';
  const defaults = defaultsFor(protocol.name, model);
  const body = protocol.normalize(compose(protocol, { ...input, defaults }));
  const violations = (await protocol.checks()).check(body);
  if (!violations.some(({ flag, value }) => flag === '--prompt' && value === '')) return undefined;
  if (io.stdin.isTTY === true) return (await readLine(io, 'Prompt: ')).trim() || undefined;
  context.progress.note('Reading the prompt from standard input.');
  return (await readStdin(io, await context.deadline())).replace(/\r?\n$/, '') || undefined;
}

async function promptFromStdin(context: Context): Promise<string> {
  const text = (await readStdin(context.io, await context.deadline())).replace(/\r?\n$/, '');
  if (text === '') throw usageError('PROMPT -: standard input is empty.');
  return text;
}

/** Adds protocol flags to `submit`. */
export function addFlags(command: Command, flags: readonly Flag[]): void {
  for (const flag of flags) {
    for (const option of optionsFor(flag)) command.addOption(option.helpGroup(`${flag.group ?? 'Video'}:`));
  }
}

function optionsFor(flag: Flag): Option[] {
  if (flag.kind === 'list') return [repeatable(flag.flags, flag.description)];
  if (flag.kind !== 'switch') return [single(flag.flags, flag.description)];
  const name = longName(flag);
  return [new Option(`--${name}`, flag.description), new Option(`--no-${name}`, `the opposite of --${name}`)];
}

/** The values of flags, and the names of the flags whose text came from a file. */
interface FlagContents {
  flags: Record<string, FlagValue>;
  fromFiles: string[];
}

function readFlags(protocol: Protocol, options: Record<string, unknown>): Promise<FlagContents> {
  const values: Record<string, FlagValue> = {};
  for (const name of protocol.flags.map(longName)) {
    const value = options[camelCase(name)] as FlagValue | undefined;
    if (value !== undefined) values[name] = value;
  }
  return withFiles(protocol.flags, values, {
    bytes: (path, name) => readInputFile(path, `--${name}`),
    text: (path, name) => readInputText(path, `--${name}`),
  });
}

/** Reads the files that flags refer to. */
interface FileReader {
  bytes: (path: string, flag: string) => Promise<Uint8Array>;
  text: (path: string, flag: string) => Promise<string>;
}

/**
 * Returns the values of flags by long name, with the content of files in place of their names. `fromFiles` names the
 * flags whose text came from a file, because that text must not be interpreted as a file name.
 * @throws MgwError('usage') as `reader` does.
 */
export async function withFiles(
  flags: readonly Flag[],
  values: Readonly<Record<string, FlagValue>>,
  reader: FileReader,
): Promise<FlagContents> {
  const contents = { ...values };
  const fromFiles: string[] = [];
  for (const flag of flags) {
    const name = longName(flag);
    const value = values[name];
    const file = value === undefined ? undefined : fileNamedBy(flag, value);
    if (file === undefined) continue;
    if (flag.kind === 'file') contents[name] = await reader.bytes(file, name);
    else {
      contents[name] = (await reader.text(file, name)).replace(/\r?\n$/, '');
      fromFiles.push(name);
    }
  }
  return { flags: contents, fromFiles };
}

/** Returns the property name that commander uses for an option: `aspectRatio`. */
export function camelCase(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}

/** Returns the exact request that would be sent, with the key redacted. Sends nothing, and needs no key. */
export function dryRun(exchange: Exchange, auth: AuthScheme, settings: Settings): Outcome {
  const body = exchange.body ?? '';
  const url = urlOf(exchange, settings);
  const headers = redactHeaders({ ...exchange.headers, [auth.header]: `${auth.scheme} key`.trim() }, [
    auth.header,
  ]);
  const json = body === '' ? undefined : parseJson(body);
  // Escapes control characters, because the prompt may come from an untrusted file.
  const bodyText = json === undefined ? '' : escapeControls(JSON.stringify(json, undefined, 2));
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return {
    json: { request: { method: exchange.method, url, headers, body: json } },
    text: [`${exchange.method} ${url}`, ...lines, '', bodyText].join('\n'),
  };
}

/** Adds the maximum total cost of the requests to the outcome of a dry run, if every price is known. */
export async function withCost(
  outcome: Outcome,
  requests: readonly PriceQuery[],
  context: Context,
): Promise<Outcome> {
  const settings = await context.settings();
  let sum = zero;
  for (const query of requests) {
    const { cost } = priceOf(query, settings);
    if (cost === undefined) return outcome;
    sum = add(sum, parseDecimal(cost.at_most));
  }
  const total = formatDecimal(sum);
  context.progress.note(`This costs at most ${total} ${currencyOf(settings)}.`);
  return { ...outcome, json: { ...outcome.json, cost: { at_most: total } } };
}

function urlOf(exchange: Exchange, settings: Settings): string {
  if (settings.sandbox.value) return `${settings.sandboxUrl ?? 'http://127.0.0.1:<sandbox>'}${exchange.path}`;
  return `${settings.baseUrl?.value.replace(/\/$/, '') ?? '<base URL>'}${exchange.path}`;
}
