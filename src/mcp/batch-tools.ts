import * as z from 'zod';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { MgwError, toMgwError } from '../errors.ts';
import { currencyOf } from '../flows/prices.ts';
import { otherKeyError, resolveCommand } from '../jobs/errors.ts';
import { listOf, printableLine } from '../printable.ts';
import type { Allowance } from '../payment/reserve.ts';
import type { Call } from './calls.ts';
import {
  type Answer,
  agentText,
  errorAnswer,
  type ToolOutcome,
  pendingAnswer,
  freeSuccess,
} from './result.ts';
import {
  type BatchRequest,
  type CheckedBatch,
  type RowInDoubt,
  type StartedRun,
  tool,
  type Tools,
} from './tool.ts';

// The arguments that all batch tools share.
const batchFields = () => ({
  manifest: z
    .string()
    .describe(
      "path of the manifest in the server's folder: .csv, .jsonl or .yaml. A row has an id and the arguments of submit_video without key, or of speak (text, speaker)",
    ),
  name: z.optional(
    z.string().describe("name of the batch, which begins its jobs' keys (default: the file name)"),
  ),
  output: z.optional(z.string().describe('template of the file paths, such as clips/{id}.{ext}')),
});

/** The maximum number of rows whose errors are stored and returned. */
const maxErrors = 200;

/** The `batch_plan`, `batch_run` and `batch_status` tools. */
export const batchTools = [
  tool({
    name: 'batch_plan',
    title: 'Plan a batch',
    description: 'Checks every row of a batch, and returns what a run would cost. Nothing is sent.',
    effect: 'look',
    fields: batchFields,
    run: async (request, call, tools) => {
      const checked = await tools.checkBatch(request, tools, 'plan');
      const { view, refusal, isOpen } = checked;
      call.notes.push(...checked.advice.map(agentText));
      if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
      const doubt = doubtAnswer(checked);
      if (doubt !== undefined) return { ...doubt, ...view };
      const others = othersThatPay(checked, tools);
      if (others.length > 0)
        return { ...freeSuccess, next: statusOf(request, others), paid_by: others, ...view };
      return {
        ...freeSuccess,
        next: isOpen ? { tool: 'batch_run', arguments: { ...request } } : null,
        ...view,
      };
    },
  }),
  tool({
    name: 'batch_run',
    title: 'Run a batch',
    description:
      'Starts the open rows of a batch and returns. This costs money. The same batch name and row id are always the same job: after a timeout or an error, call this tool again, and no row is paid for twice. Never choose another name to retry: rows that a batch with a different name has paid for are rejected. Then call batch_status.',
    effect: 'pay',
    fields: () => ({
      ...batchFields(),
      repeat: z.optional(
        z
          .boolean()
          .describe(
            'pay again for rows that a batch with a different name has paid for; use it only to remake the rows',
          ),
      ),
    }),
    run: ({ repeat = false, ...request }, call, tools) => startBatch(request, repeat, call, tools),
  }),
  tool({
    name: 'batch_status',
    title: 'Batch status',
    description:
      'Returns the state of the batch and of every unfinished row, with its error, whether it was charged (charged) and its next call; the ids of rows whose video differs from the request (mismatched); and whether this server is still running the batch. Call this tool again while pending is true.',
    effect: 'look',
    isLocal: true,
    fields: () => ({
      ...batchFields(),
      strict: z.optional(
        z
          .boolean()
          .describe(
            'return an error if a video differs from its row; the video is kept, and never paid for again',
          ),
      ),
    }),
    run: ({ strict = false, ...request }, _call, tools) => status(request, strict, tools),
  }),
];

async function startBatch(
  request: BatchRequest,
  paysAgain: boolean,
  call: Call,
  tools: Tools,
): Promise<ToolOutcome> {
  const checked = await tools.checkBatch(request, tools, 'plan');
  const { name, view, refusal, isOpen } = checked;
  call.notes.push(...checked.advice.map(agentText));
  if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
  if (!isOpen) return { ...freeSuccess, next: null, ...view };
  const doubt = doubtAnswer(checked);
  if (doubt !== undefined) return { ...doubt, ...view };
  const refusalIfPaid = (): Answer | undefined =>
    paysAgain ? undefined : paidTwiceAnswer(request, checked, tools);
  const refused = refusalIfPaid();
  if (refused !== undefined) return refused;
  const instead = isRunning(tools, name) ? undefined : await confirm(checked, call, tools);
  if (instead !== undefined) return instead;
  const next = { tool: 'batch_status', arguments: { ...request } };
  // Check again, because another call may have started the batch during the confirmation.
  if (isRunning(tools, name)) return { ...pendingAnswer(next), ...view };
  await tools.authority.check();
  const refusedNow = refusalIfPaid();
  if (refusedNow !== undefined) return refusedNow;
  startRun(tools, checked);
  return { ...pendingAnswer(next, 'maybe'), ...view };
}

function isRunning({ runs }: Tools, name: string): boolean {
  return runs.get(name)?.isRunning === true;
}

// Returns the names of other batches that have paid for rows of this batch, or are about to.
function othersThatPay({ name, rows, paidBy }: CheckedBatch, { runs }: Tools): string[] {
  const running = [...runs].filter(
    ([other, run]) => other !== name && run.isRunning && [...run.rows].some((each) => rows.has(each)),
  );
  return [...new Set([...paidBy, ...running.map(([other]) => other)])];
}

function statusOf(request: BatchRequest, [name]: string[]): Answer['next'] {
  return { tool: 'batch_status', arguments: { ...request, name } };
}

// Returns the answer to give instead of a run if the requests of some rows may already have been charged; otherwise
// undefined.
function doubtAnswer({ doubts }: CheckedBatch): Answer | undefined {
  const unknown = doubts.filter(({ about }) => about === 'unknown');
  const [first] = unknown.length > 0 ? unknown : doubts;
  if (first === undefined) return undefined;
  const error =
    first.about === 'unknown'
      ? unknownRows(unknown)
      : otherKeyError(first.job, first.about).with({ job: undefined });
  const in_doubt = doubts.map(({ id, job, about }) => ({ id, job: job.id, about }));
  return { ...errorAnswer(error, 'no'), in_doubt };
}

const maxNamed = 5;

function unknownRows(rows: readonly RowInDoubt[]): MgwError {
  const rowTexts = rows.map(({ id, job }) => `${printableLine(id, 60)} (${job.id})`);
  const text = `The requests of these rows were submitted as other jobs, and may have been charged: ${listOf(rowTexts, maxNamed)}. Nothing was sent. The user can check whether the tasks exist, and resolve each job.`;
  const next = rows[0] && resolveCommand(rows[0].job);
  return new MgwError('submit_unknown', text, { charged: 'no', retry: 'never', next });
}

// Returns the answer to give instead of a run if other batches pay for some of the rows; otherwise undefined.
function paidTwiceAnswer(request: BatchRequest, checked: CheckedBatch, tools: Tools): Answer | undefined {
  const others = othersThatPay(checked, tools);
  if (others.length === 0) return undefined;
  const text = `Rows of ${checked.name} were paid for, or are being paid for, by ${others.join(', ')}. Nothing was sent. Continue with that name, or call batch_run with repeat to pay for them again.`;
  const errorResult = errorAnswer(new MgwError('conflict', text, { charged: 'no', retry: 'never' }), 'no');
  return { ...errorResult, next: statusOf(request, others), paid_by: others, ...checked.view };
}

function startRun(tools: Tools, batch: CheckedBatch): void {
  const state: StartedRun = { isRunning: true, rows: batch.rows, errors: new Map() };
  tools.runs.set(batch.name, state);
  tools.calls.background(async (signals) => {
    try {
      const deps = await tools.session.jobDeps();
      const allowances = (): Promise<Allowance[]> => tools.authority.allowances();
      const error = await batch.run({ ...deps, signals, allowances }, (id, rowError) => {
        if (state.errors.size < maxErrors) state.errors.set(id, rowError);
      });
      if (error !== undefined) state.error = error;
    } catch (error) {
      state.error = toMgwError(error);
    } finally {
      state.isRunning = false;
    }
  });
}

async function status(request: BatchRequest, isStrict: boolean, tools: Tools): Promise<Answer> {
  // A run that ends during the check is treated as running, because the rows may have been read before its end.
  const running = new Set([...tools.runs.values()].filter(({ isRunning }) => isRunning));
  const { name, view, refusal, isOpen, hasUntriedRows, differing } = await tools.checkBatch(
    request,
    tools,
    'status',
  );
  const run = tools.runs.get(name);
  const next = (name: string, more = {}): Answer['next'] => ({
    tool: name,
    arguments: { ...request, ...more },
  });
  if (run !== undefined && (run.isRunning || running.has(run))) {
    const statusCall = next('batch_status', isStrict ? { strict: true } : {});
    return { ...freeSuccess, pending: true, next: statusCall, running: true, ...view };
  }
  // After a run, rows that failed in it would probably fail again.
  const canRun = refusal === undefined && (run === undefined ? isOpen : hasUntriedRows);
  const nextRun = canRun ? next('batch_run') : null;
  if (run?.error !== undefined) {
    const errorResult = errorAnswer(run.error, 'no');
    const isFinal =
      errorResult.retry === 'never' || errorResult.command !== undefined || run.error.code === 'budget';
    return { ...errorResult, next: errorResult.next ?? (isFinal ? null : nextRun), running: false, ...view };
  }
  if (isStrict && differing !== undefined)
    return { ...errorAnswer(differing, 'no'), running: false, ...view };
  return {
    ...freeSuccess,
    next: nextRun,
    running: false,
    ...view,
  };
}

// Returns the answer to give instead of a run that costs more than `--confirm-over`; undefined if the run may start.
async function confirm(
  { name, atMost, request, commandWords, manifest }: CheckedBatch,
  { context }: Call,
  { confirmation, authority, session }: Tools,
): Promise<ToolOutcome | undefined> {
  if (confirmation === undefined) return undefined;
  const { over } = confirmation;
  if (atMost !== undefined && compare(parseDecimal(atMost), parseAmount(over)) <= 0) return undefined;
  const amount = atMost ?? 'unknown';
  const currency = currencyOf(await session.settings());
  const text = atMost === undefined ? 'costs an unknown amount, perhaps' : `may cost ${amount} ${currency},`;
  const message = `The batch ${name} ${text} more than ${over} ${currency}.`;
  const command = ['mgw', 'batch', 'run', ...commandWords, ...(await authority.flags()), '--', manifest];
  return confirmation.ask({ tool: 'batch_run', key: name, request, amount }, message, command, context);
}
