import type { CallToolResult, InputRequiredResult, ServerContext } from '@modelcontextprotocol/server';
import { createHash } from 'node:crypto';
import * as z from 'zod';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import type { FlowDeps } from '../flows/flow-deps.ts';
import { priceOf, type Asked } from '../flows/prices.ts';
import type { Job } from '../job.ts';
import { namedJob } from '../jobs/named-job.ts';
import { shownState } from '../jobs/reconcile.ts';
import { canonicalJson, type Json } from '../json.ts';
import type { Call } from './calls.ts';
import type { Asking } from './confirmation.ts';
import { agentView, type Answer } from './result.ts';
import type { Tools } from './tools.ts';

/** What every description of a tool that pays says. */
export const sameKey =
  'The same key is always the same job: call again with the same key and arguments after a timeout or an error, and nothing is paid twice.';

/** The argument that every tool that pays requires. */
export const keyField = z
  .string()
  .describe('permanently names this submission, such as intro-1. Never choose another key to try again.');

/** The arguments of a call. */
export type Given = Record<string, unknown>;

/** What a tool that pays returns: its outcome, or a question to the person. */
export type Answered = CallToolResult | InputRequiredResult;

/** Returns the answer about a job that was accepted. */
export function paidAnswer(job: Job, isResumed: boolean, next: Answer['next']): Answer {
  const charged = isResumed ? 'no' : 'yes';
  return {
    ok: true,
    charged,
    retry: 'resume',
    next,
    ...(isResumed && { resumed: true }),
    job: agentView(job),
  };
}

/** Returns the answer of a call that ran out of time: the server records the outcome, and the same call finds it. */
export function goesOn(tool: string, given: Given): Answer {
  return { ok: true, charged: 'maybe', retry: 'resume', pending: true, next: { tool, arguments: given } };
}

/** Returns deps that pay under the server's authority alone, and remember that they were asked to. */
export async function payingDeps(tools: Tools, call: Call): Promise<FlowDeps> {
  const deps = await call.deps();
  return {
    ...deps,
    allowances: () => tools.authority.allowances(),
    // Asked for directly before a payment, and not by a call that resumes a job.
    priceOf: (order) => {
      call.paying();
      return deps.priceOf(order);
    },
  };
}

/**
 * Asks the person if a payment is above the amount of `--confirm-over`.
 * @returns what is answered instead of the outcome; undefined if the call may go on
 */
export async function unconfirmed(
  tools: Tools,
  { key, order, tool, given }: { key: string; order: Asked; tool: string; given: Given },
  deps: FlowDeps,
  context: ServerContext,
): Promise<Answered | undefined> {
  const limit = tools.confirmation?.over;
  if (tools.confirmation === undefined || limit === undefined || (await isPaid(key, deps))) return undefined;
  const { cost, what } = priceOf(order, await tools.session.settings());
  if (cost !== undefined && compare(parseDecimal(cost.at_most), parseAmount(limit)) <= 0) return undefined;
  const amount = cost?.at_most ?? 'unknown';
  const request = createHash('sha256')
    .update(canonicalJson([order.protocol, order.body] as Json))
    .digest('hex');
  const message = `${what}: this may cost ${amount}, more than ${limit}.`;
  const asking: Asking = { tool, key, request, amount };
  return tools.confirmation.ask(asking, message, commandLine(tool, given), context);
}

// Whether nothing is paid for a key again. A job that was rejected is sent again.
async function isPaid(key: string, { ledger }: FlowDeps): Promise<boolean> {
  const job = await namedJob(ledger, key);
  if (job === undefined) return false;
  return job.handle !== undefined || ['sending', 'unknown'].includes(shownState(job));
}

// The command line that does what a call asks for.
function commandLine(tool: string, { protocol, text, ...flags }: Given): string[] {
  const words =
    tool === 'speak' ? ['tts'] : ['video', ...(protocol === undefined ? [] : [textOf(protocol)]), 'submit'];
  const options = Object.entries(flags).flatMap(([name, value]) => {
    if (value === undefined) return [];
    if (typeof value === 'boolean') return [value ? `--${name}` : `--no-${name}`];
    return [value].flat().map((each) => `--${name}=${textOf(each)}`);
  });
  return ['mgw', ...words, ...options, ...(text === undefined ? [] : ['--', textOf(text)])];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
