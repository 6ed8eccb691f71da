import { hash } from 'node:crypto';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { MgwError } from '../errors.ts';
import type { Delivered } from '../flows/deliver.ts';
import type { FlowDeps } from '../flows/settings.ts';
import { priceOf, type PriceQuery } from '../flows/prices.ts';
import type { Job } from '../job.ts';
import { withPaymentMark } from '../jobs/order.ts';
import { namedJob } from '../jobs/ref.ts';
import { shownState } from '../jobs/reconcile.ts';
import { canonicalJson, type Json } from '../json.ts';
import { checkKeyName, isKeyName } from '../jobs/ref.ts';
import { checkBudgets } from '../payment/reserve.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, errorAnswer, type NextCall, type ToolOutcome } from './result.ts';
import type { Tools } from './tool.ts';

/** A tool call's arguments, by name. */
export type Arguments = Record<string, unknown>;

/** A payment that a tool call requests. */
export interface PaymentRequest {
  tool: string;
  key: string;
  /** The arguments, including the key. */
  args: Arguments;
  /** The arguments with absolute paths, for a command line that the user can run in any folder. */
  absoluteArgs: Arguments;
  /** The request to pay for. */
  order: PriceQuery;
  /** Pays for the request, or finds the job that paid for it. */
  flow: (deps: FlowDeps) => Promise<Delivered>;
  /** Returns the next call for the job; null if there is nothing to do. */
  next: (job: Job) => NextCall | null;
}

/** Pays once for a tool call's request, or finds the job with its key. Asks the user first if necessary. */
export async function pay(request: PaymentRequest, call: Call, tools: Tools): Promise<ToolOutcome> {
  checkKeyName(request.key, false);
  const deps = await payingDeps(tools, call);
  const unconfirmedAnswer = await confirm(request, deps, call, tools);
  if (unconfirmedAnswer !== undefined) return unconfirmedAnswer;
  let result: Delivered;
  try {
    result = await request.flow(deps);
  } catch (error) {
    return otherKeyAnswer(error, request);
  }
  const { job, files, isResumed, delivered } = result;
  // A client that gave up does not know about the job, so the job must not be recorded as delivered.
  call.onAnswered(delivered);
  return {
    ok: true,
    charged: isResumed ? 'no' : 'yes',
    retry: 'resume',
    next: request.next(job),
    ...(isResumed && { resumed: true }),
    job: agentView(job),
    ...(files.length > 0 && { files }),
  };
}

// Returns the answer for a request that was submitted with a different key. The client may not know that key.
function otherKeyAnswer(error: unknown, { tool, key, args }: PaymentRequest): Answer {
  const other = error instanceof MgwError && error.code === 'conflict' ? error.job?.key : undefined;
  if (!(error instanceof MgwError) || other === undefined || other === key) throw error;
  // Tools do not accept the key of a batch row.
  const next = isKeyName(other) ? { tool, arguments: { ...args, key: other } } : undefined;
  return { ...errorAnswer(error, 'no'), ...(next && { next }) };
}

// Returns dependencies that pay only within the server's budgets, and record that a payment was attempted.
async function payingDeps(tools: Tools, call: Call): Promise<FlowDeps> {
  const deps = withPaymentMark(await call.deps(), call.markPaying);
  return { ...deps, allowances: () => tools.authority.allowances() };
}

// Returns the answer to give instead of a payment that exceeds `--confirm-over`; undefined if the payment may be made.
// Checks the budgets first, so that the user is not asked about a payment that they do not allow.
async function confirm(
  { key, order, tool, absoluteArgs }: PaymentRequest,
  deps: FlowDeps,
  { context }: Call,
  { confirmation, session, authority }: Tools,
): Promise<ToolOutcome | undefined> {
  if (confirmation === undefined || (await isPaid(key, deps))) return undefined;
  const { over } = confirmation;
  const priced = priceOf(order, await session.settings());
  const { cost, subject: what, currency = 'credits' } = priced;
  if (cost !== undefined && compare(parseDecimal(cost.at_most), parseAmount(over)) <= 0) return undefined;
  await checkBudgets([priced], await authority.allowances());
  const amount = cost?.at_most ?? 'unknown';
  const request = hash('sha256', canonicalJson([order.protocol, order.body] as Json));
  const text =
    cost === undefined ? 'the cost is unknown, and may be' : `this may cost ${amount} ${currency},`;
  const message = `${what}: ${text} more than ${over} ${currency}.`;
  const command = commandLine(tool, absoluteArgs, await authority.flags());
  return confirmation.ask({ tool, key, request, amount }, message, command, context);
}

// Whether the job with this key was, or may have been, paid for. A rejected job is sent again.
async function isPaid(key: string, { ledger }: FlowDeps): Promise<boolean> {
  const job = await namedJob(ledger, key);
  if (job === undefined) return false;
  return job.handle !== undefined || ['sending', 'unknown'].includes(shownState(job));
}

// Returns the command line that is equivalent to a tool call.
function commandLine(
  tool: string,
  { protocol, text, ...flags }: Arguments,
  more: readonly string[],
): string[] {
  const words =
    tool === 'speak' ? ['tts'] : ['video', ...(protocol === undefined ? [] : [textOf(protocol)]), 'submit'];
  const options = Object.entries(flags).flatMap(([name, value]) => {
    if (value === undefined) return [];
    if (typeof value === 'boolean') return [value ? `--${name}` : `--no-${name}`];
    return [value].flat().map((each) => `--${name}=${textOf(each)}`);
  });
  return ['mgw', ...words, ...options, ...more, ...(text === undefined ? [] : ['--', textOf(text)])];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
