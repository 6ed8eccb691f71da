import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { optionJson, optionText } from '../../input.ts';
import { interruptions } from '../../io.ts';
import { oneOf, repeatable, single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addCallOptions } from '../../wait-options.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { bearer, type Exchange, xApiKey } from '../../../exchange.ts';
import type { GatewayClient } from '../../../http/client.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { interruptionError } from '../../../payment/errors.ts';
import { printableLine } from '../../../printable.ts';
import { version } from '../../../installation.ts';

const examples = `
Examples:
  $ mgw api GET /v1/models
  $ mgw api GET /v1/videos/TASK/content > video.mp4
  $ mgw api POST / --header 'X-TC-Action: DescribeTaskDetail' --header 'X-TC-Version: 2018-07-17' --body '{"TaskId":"T"}'
A POST may cost money. It is not recorded. It is retried only if the gateway cannot have processed it.`;

/** `mgw api METHOD PATH`: makes a raw call with the same key, proxy and redaction as every other command. */
export function registerApi(command: Command, run: Run): void {
  command
    .argument('<method>', 'GET or POST')
    .argument('<path>', 'path below the base URL, including the query')
    .addOption(single('--body <json>', 'the body: JSON, @FILE, or - for stdin'))
    .addOption(repeatable('--header <line>', "a header: 'Name: value'"))
    .addOption(
      oneOf(single('--auth <how>', 'how to send the key (default bearer)'), Object.keys(authSchemes)),
    )
    .option('--include', 'print the status and headers before the body');
  addCallOptions(command, '2m');
  command
    .addHelpText('after', examples)
    .action((method: string, path: string) =>
      run(command, (context) => api(context, method, path, command.opts())),
    );
}

async function api(context: Context, method: string, path: string, options: ApiOptions): Promise<Outcome> {
  const { answerView, apiCall, printAnswer, errorOf: refusalOf } = await import('./print.ts');
  const exchange = await apiRequest(context, method, path, options);
  const settings = await context.settings();
  const auth = options.auth ?? 'bearer';
  const signal = interruptions().soft;
  const call = {
    auth: authSchemes[auth],
    timeoutMs: settings.requestTimeoutMs.value ?? 120_000,
    signal,
  };
  const redact = (text: string): string => context.redact(text);
  const client = auth === 'none' ? await keylessClient(context) : await context.client();
  const deps = {
    client,
    clock: context.clock,
    retries: settings.retries.value,
    retry5xx: settings.submitRetry5xx.value,
    requestTimeoutMs: call.timeoutMs,
    lease: async () => (await context.ledger()).lease(),
    // A budget forbids raw calls, because their cost is unknown.
    allowances: () => context.allowances(),
    note: (text: string) => context.progress.note(text),
    // The first signal aborts the call, because a raw call has no job to resume.
    signals: { soft: signal, hard: signal },
  };
  try {
    const reply = await apiCall(exchange, call, deps, await context.deadline());
    const error = refusalOf(reply);
    const charge = error?.charged ?? (exchange.method === 'POST' ? 'maybe' : 'no');
    if (context.globals.json) return { json: await answerView(reply, redact), error, paid: charge };
    await printAnswer(reply, { io: context.io, include: options.include ?? false, redact });
    return { json: {}, error };
  } catch (error) {
    throw signal.aborted
      ? interruptedError(signal, exchange.method)
      : incompleteError(error, exchange.method);
  } finally {
    client.close();
  }
}

function interruptedError(signal: AbortSignal, method: string): MgwError {
  return method === 'POST'
    ? interruptionError(signal, 'maybe', 'Interrupted: the request may have been processed.').with({
        retry: 'never',
      })
    : interruptionError(signal, 'no', 'Interrupted.');
}

// Returns the error for a lost response. A GET can be repeated. A POST cannot: the gateway may have processed it.
function incompleteError(error: unknown, method: string): unknown {
  const isPost = method === 'POST';
  if (error instanceof MgwError && error.code === 'local_io' && isPost)
    return new MgwError(error.code, error.message, { charged: 'maybe', retry: 'never', cause: error });
  if (!(error instanceof TransportError)) return error;
  const text = `The response is incomplete: ${error.message}.`;
  if (isPost) return new MgwError('submit_unknown', text, { charged: 'maybe', cause: error });
  return new MgwError('bad_reply', text, { retry: 'safe', cause: error });
}

async function keylessClient(context: Context): Promise<GatewayClient> {
  const { createClient } = await import('../../../http/client.ts');
  return createClient({ baseUrl: (await context.gateway()).baseUrl, key: '', userAgent: `mgw/${version}` });
}

interface ApiOptions {
  body?: string;
  header?: string[];
  auth?: keyof typeof authSchemes;
  include?: boolean;
}

/** The scheme for each value of `--auth`. With `none`, the client has no key to send. */
const authSchemes = { bearer, 'x-api-key': xApiKey, none: bearer };

/** Builds the exchange for a raw call. @throws MgwError('usage') if an argument or flag is invalid. */
async function apiRequest(
  context: Context,
  method: string,
  path: string,
  options: ApiOptions,
): Promise<Exchange> {
  const verb = method.toUpperCase();
  if (verb !== 'GET' && verb !== 'POST')
    throw usageError(`METHOD must be GET or POST, not ${printableLine(method, 20)}`);
  if (verb === 'GET' && options.body !== undefined) throw usageError('--body requires POST.');
  const headers = headersOf(options.header ?? []);
  const { baseUrl } = await context.gateway();
  const exchange: Exchange = { method: verb, path: pathBelow(baseUrl, path), headers };
  if (options.body === undefined) return exchange;
  const body = await optionText(context, options.body, '--body');
  headers['content-type'] ??= 'application/json';
  if (/json/i.test(headers['content-type'])) optionJson(body, '--body');
  return { ...exchange, body: body.text };
}

/**
 * Returns a path below the base URL, percent-encoded and with its query. An absolute URL must have the base URL's
 * origin, because mgw must not send the key to other origins.
 */
export function pathBelow(baseUrl: URL, path: string): string {
  const prefix = baseUrl.pathname.replace(/\/$/, '');
  const isAbsolute = /^[a-z][a-z\d+.-]*:/i.test(path);
  const address = isAbsolute ? path : `${baseUrl.origin}${prefix}${path}`;
  if (!isAbsolute && !path.startsWith('/'))
    throw usageError(`PATH: ${printableLine(path, 60)} must begin with /`);
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isInside = url?.pathname === prefix || url?.pathname.startsWith(`${prefix}/`) === true;
  if (url?.origin !== baseUrl.origin || !isInside || url.username !== '' || url.password !== '')
    throw usageError(
      `PATH: ${printableLine(path, 60)} is not below the base URL. mgw api sends the key only to paths below it.`,
    );
  return (url.pathname.slice(prefix.length) || '/') + url.search;
}

// Headers that `--header` refuses: credentials, which process lists would display, and headers that the transport sets.
const credentialHeaders = /^(authorization|proxy-authorization|x-api-key|x-goog-api-key|cookie)$/i;
const transportHeaders =
  /^(host|content-length|transfer-encoding|connection|upgrade|te|trailer|expect|keep-alive)$/i;

function headersOf(lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name = '', value = ''] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*)$/s.exec(line) ?? [];
    const shownName = printableLine(line.split(':')[0] ?? '', 60);
    if (name === '') throw usageError(`--header must be 'Name: value', not ${shownName}`);
    if (credentialHeaders.test(name))
      throw usageError(
        `--header ${shownName} is not allowed: mgw sends the configured key as --auth specifies.`,
      );
    if (transportHeaders.test(name)) throw usageError(`--header ${shownName}: mgw sets this header itself.`);
    if (/[^\t\x20-\x7e]/.test(value))
      throw usageError(`--header ${shownName}: the value must be printable ASCII.`);
    if (Object.hasOwn(headers, name.toLowerCase()))
      throw usageError(`--header ${shownName} can be used only once.`);
    headers[name.toLowerCase()] = value.trim();
  }
  return headers;
}
