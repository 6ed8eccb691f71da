import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { optionJson, optionText } from '../../input.ts';
import { interruptions } from '../../io.ts';
import { oneOf, repeatable, single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addRetriesOption, requestTimeoutOption, timeoutOption } from '../../wait-options.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { type AuthScheme, bearer, type Exchange, xApiKey } from '../../../exchange.ts';
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
A POST may cost money: it is not recorded, and is retried only if it was certainly not handled.`;

/** `mgw api METHOD PATH`: makes a raw call, with the same key, proxy and redaction as every other command. */
export function registerApi(command: Command, run: Run): void {
  command
    .argument('<method>', 'GET or POST')
    .argument('<path>', 'path below the base URL, with its query')
    .addOption(single('--body <json>', 'the body: JSON, @FILE, or - for stdin'))
    .addOption(repeatable('--header <line>', "a header: 'Name: value'"))
    .addOption(
      oneOf(single('--auth <how>', 'how the key is sent (default bearer)'), ['bearer', 'x-api-key', 'none']),
    )
    .option('--include', 'print status and headers before the body')
    .addOption(timeoutOption())
    .addOption(requestTimeoutOption(' (default 2m)'));
  addRetriesOption(command);
  command
    .addHelpText('after', examples)
    .action((method: string, path: string) =>
      run(command, (context) => api(context, method, path, command.opts())),
    );
}

async function api(context: Context, method: string, path: string, options: ApiOptions): Promise<Outcome> {
  const { answerView, apiCall, printAnswer, refusalOf } = await import('./print.ts');
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
  const client = auth === 'none' ? await keyless(context) : await context.client();
  const deps = {
    client,
    clock: context.clock,
    retries: settings.retries.value,
    retry5xx: settings.submitRetry5xx.value,
    requestTimeoutMs: call.timeoutMs,
    lease: async () => (await context.ledger()).lease(),
    // The cost of a raw call is unknown, so none is made under a budget.
    allowances: () => context.allowances(),
    note: (text: string) => context.progress.note(text),
    // The first signal aborts the call, because a raw call has no job that could be resumed.
    signals: { soft: signal, hard: signal },
  };
  try {
    const answer = await apiCall(exchange, call, deps, await context.deadline());
    const error = refusalOf(answer);
    const paid = error?.charged ?? (exchange.method === 'POST' ? 'maybe' : 'no');
    if (context.globals.json) return { json: await answerView(answer, redact), error, paid };
    await printAnswer(answer, { io: context.io, include: options.include ?? false, redact });
    return { json: {}, error };
  } catch (error) {
    throw signal.aborted ? givenUp(signal, exchange.method) : notWhole(error, exchange.method);
  } finally {
    client.close();
  }
}

function givenUp(signal: AbortSignal, method: string): MgwError {
  return method === 'POST'
    ? interruptionError(signal, 'maybe', 'Interrupted: the request may have been handled.').with({
        retry: 'never',
      })
    : interruptionError(signal, 'no', 'Interrupted.');
}

// Returns the error for a lost response. A POST was handled, but a GET can be repeated.
function notWhole(error: unknown, method: string): unknown {
  const post = method === 'POST';
  if (error instanceof MgwError && error.code === 'local_io' && post)
    return new MgwError(error.code, error.message, { charged: 'maybe', retry: 'never', cause: error });
  if (!(error instanceof TransportError)) return error;
  const text = `The response is incomplete: ${error.message}.`;
  if (post) return new MgwError('submit_unknown', text, { charged: 'maybe', cause: error });
  return new MgwError('bad_reply', text, { retry: 'safe', cause: error });
}

async function keyless(context: Context): Promise<GatewayClient> {
  const { createClient } = await import('../../../http/client.ts');
  return createClient({ baseUrl: (await context.gateway()).baseUrl, key: '', userAgent: `mgw/${version}` });
}

interface ApiOptions {
  body?: string;
  header?: string[];
  auth?: ApiAuth;
  include?: boolean;
}

/** How the key is sent; `none` if it is not sent. */
type ApiAuth = 'bearer' | 'x-api-key' | 'none';

/** How the key is sent, for each word of `--auth`. */
const authSchemes: Record<ApiAuth, AuthScheme> = { bearer, 'x-api-key': xApiKey, none: bearer };

/** Builds the exchange of a raw call. @throws MgwError('usage') naming what is wrong; nothing is sent. */
async function apiRequest(
  context: Context,
  method: string,
  path: string,
  options: ApiOptions,
): Promise<Exchange> {
  const verb = method.toUpperCase();
  if (verb !== 'GET' && verb !== 'POST')
    throw usageError(`METHOD: ${printableLine(method, 20)} is not allowed; allowed: GET, POST`);
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
 * Returns a path below the base URL, percent-encoded, with its query. An absolute URL must have the origin of the base
 * URL, because the key is sent nowhere else.
 */
export function pathBelow(baseUrl: URL, path: string): string {
  const prefix = baseUrl.pathname.replace(/\/$/, '');
  const absolute = /^[a-z][a-z\d+.-]*:/i.test(path);
  const address = absolute ? path : `${baseUrl.origin}${prefix}${path}`;
  if (!absolute && !path.startsWith('/'))
    throw usageError(`PATH: ${printableLine(path, 60)} must begin with /`);
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const inside = url?.pathname === prefix || url?.pathname.startsWith(`${prefix}/`) === true;
  if (url?.origin !== baseUrl.origin || !inside || url.username !== '' || url.password !== '')
    throw usageError(
      `PATH: ${printableLine(path, 60)} is not below the base URL; the key is sent nowhere else.`,
    );
  return (url.pathname.slice(prefix.length) || '/') + url.search;
}

// Credentials must not be on the command line, which a process list shows. The other headers belong to the transport.
const taken = /^(authorization|proxy-authorization|x-api-key|x-goog-api-key|cookie)$/i;
const transports =
  /^(host|content-length|transfer-encoding|connection|upgrade|te|trailer|expect|keep-alive)$/i;

function headersOf(lines: readonly string[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const [, name = '', value = ''] = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*)$/s.exec(line) ?? [];
    const shown = printableLine(line.split(':')[0] ?? '', 60);
    if (name === '') throw usageError(`--header: write it as 'Name: value', not ${shown}`);
    if (taken.test(name))
      throw usageError(`--header ${shown}: mgw sends the configured key; --auth says how.`);
    if (transports.test(name)) throw usageError(`--header ${shown}: mgw sets this header itself.`);
    if (/[^\t\x20-\x7e]/.test(value)) throw usageError(`--header ${shown}: its value must be plain ASCII.`);
    if (Object.hasOwn(headers, name.toLowerCase())) throw usageError(`--header ${shown} is given twice.`);
    headers[name.toLowerCase()] = value.trim();
  }
  return headers;
}
