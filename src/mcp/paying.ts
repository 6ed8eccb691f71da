import { createHash } from 'node:crypto';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { MgwError } from '../errors.ts';
import type { Delivered } from '../flows/deliver.ts';
import type { FlowDeps } from '../flows/settings.ts';
import { priceOf, type PriceQuery } from '../flows/prices.ts';
import type { Job } from '../job.ts';
import { namedJob } from '../jobs/ref.ts';
import { shownState } from '../jobs/reconcile.ts';
import { canonicalJson, type Json } from '../json.ts';
import { checkKeyName, isKeyName } from '../jobs/ref.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, errorAnswer, type NextCall, type ToolOutcome } from './result.ts';
import type { Tools } from './tool.ts';

/** The arguments of a call. */
export type Given = Record<string, unknown>;

/** A payment that a tool call requests. */
export interface PaymentRequest {
  tool: string;
  key: string;
  /** The arguments, with the key. */
  given: Given;
  /** The arguments with absolute paths, for a person's command line in any folder. */
  typed: Given;
  /** The request to pay for. */
  order: PriceQuery;
  /** Pays, or finds the paid job. */
  flow: (deps: FlowDeps) => Promise<Delivered>;
  /** Returns the next call for the job; null if there is nothing to do. */
  next: (job: Job) => NextCall | null;
}

/** Pays once for the request of a tool call, or finds the job of its key. Asks the person first if needed. */
export async function pay(asked: PaymentRequest, call: Call, tools: Tools): Promise<ToolOutcome> {
  checkKeyName(asked.key, false);
  const deps = await payingDeps(tools, call);
  const instead = await unconfirmed(asked, deps, call, tools);
  if (instead !== undefined) return instead;
  let paid: Delivered;
  try {
    paid = await asked.flow(deps);
  } catch (error) {
    return submittedUnder(error, asked);
  }
  const { job, files, isResumed, delivered } = paid;
  // A client that gave up does not know of the job, and the record must say so.
  call.whenTold(delivered);
  return {
    ok: true,
    charged: isResumed ? 'no' : 'yes',
    retry: 'resume',
    next: asked.next(job),
    ...(isResumed && { resumed: true }),
    job: agentView(job),
    ...(files.length > 0 && { files }),
  };
}

// Returns the answer if the request was submitted under another key that the client may not know of.
function submittedUnder(error: unknown, { tool, key, given }: PaymentRequest): Answer {
  const other = error instanceof MgwError && error.code === 'conflict' ? error.job?.key : undefined;
  if (!(error instanceof MgwError) || other === undefined || other === key) throw error;
  // The key of a batch's row is not a key that a tool accepts.
  const next = isKeyName(other) ? { tool, arguments: { ...given, key: other } } : undefined;
  return { ...errorAnswer(error, 'no'), ...(next && { next }) };
}

// Returns deps that pay only under the server's authority, and record that a payment was attempted.
async function payingDeps(tools: Tools, call: Call): Promise<FlowDeps> {
  const deps = await call.deps();
  return {
    ...deps,
    allowances: () => tools.authority.allowances(),
    // Called directly before a payment, but not for a call that resumes a job.
    priceOf: (order) => {
      call.paying();
      return deps.priceOf(order);
    },
  };
}

// Returns the answer in place of a payment above the amount of `--confirm-over`; undefined if it may be made.
async function unconfirmed(
  { key, order, tool, typed }: PaymentRequest,
  deps: FlowDeps,
  { context }: Call,
  { confirmation, session, authority }: Tools,
): Promise<ToolOutcome | undefined> {
  if (confirmation === undefined || (await isPaid(key, deps))) return undefined;
  const { over } = confirmation;
  const { cost, subject: what } = priceOf(order, await session.settings());
  if (cost !== undefined && compare(parseDecimal(cost.at_most), parseAmount(over)) <= 0) return undefined;
  const amount = cost?.at_most ?? 'unknown';
  const request = createHash('sha256')
    .update(canonicalJson([order.protocol, order.body] as Json))
    .digest('hex');
  const message = `${what}: this may cost ${amount}, more than ${over}.`;
  const command = commandLine(tool, typed, await authority.flags());
  return confirmation.ask({ tool, key, request, amount }, message, command, context);
}

// Whether a key's job rules out another payment. A rejected job is sent again.
async function isPaid(key: string, { ledger }: FlowDeps): Promise<boolean> {
  const job = await namedJob(ledger, key);
  if (job === undefined) return false;
  return job.handle !== undefined || ['sending', 'unknown'].includes(shownState(job));
}

// Returns the command line that is equivalent to a call.
function commandLine(tool: string, { protocol, text, ...flags }: Given, more: readonly string[]): string[] {
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
