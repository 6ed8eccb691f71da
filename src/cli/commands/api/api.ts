import type { Command } from 'commander';
import { deadlineIn } from '../../../clock.ts';
import { MgwError } from '../../../errors.ts';
import type { GatewayClient } from '../../../http/client.ts';
import { TransportError } from '../../../http/transport-error.ts';
import { interrupted } from '../../../payment/errors.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import { oneOf, repeatable, single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { version } from '../../../version.ts';
import { addRetriesOption, requestTimeoutOption } from '../../wait-options.ts';
import type { ApiOptions } from './request.ts';

const examples = `
Examples:
  $ mgw api GET /v1/models
  $ mgw api GET /v1/videos/TASK/content > video.mp4
  $ mgw api POST / --header 'X-TC-Action: DescribeTaskDetail' --header 'X-TC-Version: 2018-07-17' --body '{"TaskId":"T"}'
A POST may cost money: it is not recorded, and tried again only where it certainly was not handled.`;

/** `mgw api METHOD PATH`: a raw call with the key, the proxy and the redaction of every other command. */
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
    .addOption(requestTimeoutOption(' (default 2m)'));
  addRetriesOption(command);
  command
    .addHelpText('after', examples)
    .action((method: string, path: string) =>
      run(command, (context) => api(context, method, path, command.opts())),
    );
}

async function api(context: Context, method: string, path: string, options: ApiOptions): Promise<Outcome> {
  const [{ apiRequest, authSchemes }, { apiCall, refusalOf }, { answerView, printAnswer }] =
    await Promise.all([import('./request.ts'), import('./call.ts'), import('./print.ts')]);
  const exchange = await apiRequest(context, method, path, options);
  const settings = await context.settings();
  const auth = options.auth ?? 'bearer';
  const { interruptions } = await import('../../signals.ts');
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
    // What it costs is not known: under a budget it is not made.
    allowances: () => context.allowances(),
    note: (text: string) => context.progress.note(text),
    // There is no job that would go on.
    signals: { soft: signal, hard: signal },
  };
  try {
    const answer = await apiCall(exchange, call, deps, deadlineIn(settings.timeoutMs.value, context.clock));
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
    ? interrupted(signal, 'maybe', 'Interrupted: the request may have been handled.').with({ retry: 'never' })
    : interrupted(signal, 'no', 'Interrupted.');
}

// The answer to a POST said that it was handled, and what it was is lost; a GET can be asked again.
function notWhole(error: unknown, method: string): unknown {
  const post = method === 'POST';
  if (error instanceof MgwError && error.code === 'local_io' && post)
    return new MgwError(error.code, error.message, { charged: 'maybe', retry: 'never', cause: error });
  if (!(error instanceof TransportError)) return error;
  const text = `The answer is not whole: ${error.message}.`;
  if (post) return new MgwError('submit_unknown', text, { charged: 'maybe', cause: error });
  return new MgwError('bad_reply', text, { retry: 'safe', cause: error });
}

async function keyless(context: Context): Promise<GatewayClient> {
  const { createClient } = await import('../../../http/client.ts');
  return createClient({ baseUrl: (await context.gateway()).baseUrl, key: '', userAgent: `mgw/${version}` });
}
