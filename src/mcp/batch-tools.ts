import * as z from 'zod';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { MgwError, toMgwError } from '../errors.ts';
import { otherKeyError, resolveCommand } from '../jobs/errors.ts';
import { printableLine } from '../printable.ts';
import type { Allowance } from '../payment/reserve.ts';
import type { Call } from './calls.ts';
import { type Answer, errorAnswer, type ToolOutcome, pendingAnswer, freeSuccess } from './result.ts';
import {
  type BatchRequest,
  type CheckedBatch,
  type RowInDoubt,
  type StartedRun,
  tool,
  type Tools,
} from './tool.ts';

// The arguments that all three tools have.
const batchFields = () => ({
  manifest: z
    .string()
    .describe(
      "path of the manifest in the server's folder: .csv, .jsonl or .yaml. A row has an id and the arguments of submit_video without key, or of speak (text, speaker)",
    ),
  name: z.optional(z.string().describe('names the batch and so its jobs; by default the name of the file')),
  output: z.optional(z.string().describe('path of the files, such as clips/{id}.{ext}')),
});

/** The maximum number of rows whose errors are kept: as many as an answer shows. */
const maxErrors = 200;

/** The tools `batch_plan`, `batch_run` and `batch_status`. */
export const batchTools = [
  tool({
    name: 'batch_plan',
    title: 'Plan a batch',
    description: 'Checks every row of a batch, and shows what running it would cost. Nothing is sent.',
    effect: 'look',
    fields: batchFields,
    run: async (asked, _call, tools) => {
      const checked = await tools.checkBatch(asked, tools, 'plan');
      const { view, refusal, isOpen } = checked;
      if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
      const doubt = inDoubt(checked);
      if (doubt !== undefined) return { ...doubt, ...view };
      const others = othersThatPay(checked, tools);
      if (others.length > 0)
        return { ...freeSuccess, next: statusOf(asked, others), paid_by: others, ...view };
      return {
        ...freeSuccess,
        next: isOpen ? { tool: 'batch_run', arguments: { ...asked } } : null,
        ...view,
      };
    },
  }),
  tool({
    name: 'batch_run',
    title: 'Run a batch',
    description:
      'Starts the open rows of a batch and returns: this costs money. The same batch name and row id are always the same job: call again after a timeout or an error, and no row is paid for twice. Never choose another name to try again: rows that a batch of another name has paid for are refused. Then call batch_status.',
    effect: 'pay',
    fields: () => ({
      ...batchFields(),
      repeat: z.optional(
        z
          .boolean()
          .describe(
            'pays again for rows that a batch of another name has paid for; use it only to make them twice',
          ),
      ),
    }),
    run: ({ repeat = false, ...asked }, call, tools) => started(asked, repeat, call, tools),
  }),
  tool({
    name: 'batch_status',
    title: 'State of a batch',
    description:
      'Shows the state of the batch and of every row that is not done, with its error, what it has cost (charged) and its next call, the ids of rows whose video differs from the request (mismatched), and whether this server is still running the batch. Call it until pending is gone.',
    effect: 'look',
    isLocal: true,
    fields: () => ({
      ...batchFields(),
      strict: z.optional(
        z
          .boolean()
          .describe(
            'ends in an error if a video differs from its row; the video is kept, and never paid for again',
          ),
      ),
    }),
    run: ({ strict = false, ...asked }, _call, tools) => status(asked, strict, tools),
  }),
];

async function started(
  asked: BatchRequest,
  isRepeated: boolean,
  call: Call,
  tools: Tools,
): Promise<ToolOutcome> {
  const checked = await tools.checkBatch(asked, tools, 'plan');
  const { name, view, refusal, isOpen } = checked;
  if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
  if (!isOpen) return { ...freeSuccess, next: null, ...view };
  const doubt = inDoubt(checked);
  if (doubt !== undefined) return { ...doubt, ...view };
  const twice = (): Answer | undefined => (isRepeated ? undefined : paidTwice(asked, checked, tools));
  const refused = twice();
  if (refused !== undefined) return refused;
  const instead = isRunning(tools, name) ? undefined : await unconfirmed(checked, call, tools);
  if (instead !== undefined) return instead;
  const next = { tool: 'batch_status', arguments: { ...asked } };
  // Check again: another call may have started the batch while the person was asked.
  if (isRunning(tools, name)) return { ...pendingAnswer(next), ...view };
  await tools.authority.check();
  const late = twice();
  if (late !== undefined) return late;
  start(tools, checked);
  return { ...pendingAnswer(next, 'maybe'), ...view };
}

function isRunning({ runs }: Tools, name: string): boolean {
  return runs.get(name)?.isRunning === true;
}

// Returns the names of other batches that have paid for rows of a batch, or are about to.
function othersThatPay({ name, rows, paidBy }: CheckedBatch, { runs }: Tools): string[] {
  const running = [...runs].filter(
    ([other, run]) => other !== name && run.isRunning && [...run.rows].some((each) => rows.has(each)),
  );
  return [...new Set([...paidBy, ...running.map(([other]) => other)])];
}

function statusOf(asked: BatchRequest, [name]: string[]): Answer['next'] {
  return { tool: 'batch_status', arguments: { ...asked, name } };
}

// Returns the answer in place of a run of rows whose requests may have been charged already; undefined if there are none.
function inDoubt({ doubts }: CheckedBatch): Answer | undefined {
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
  const named = rows.slice(0, maxNamed).map(({ id, job }) => `${printableLine(id, 60)} (${job.id})`);
  const more = rows.length > maxNamed ? `, and ${rows.length - maxNamed} more` : '';
  const text = `The requests of these rows were submitted as other jobs, and may have been charged: ${named.join(', ')}${more}. Nothing was sent. A person can find out whether the tasks exist, and resolve each job.`;
  const next = rows[0] && resolveCommand(rows[0].job);
  return new MgwError('submit_unknown', text, { charged: 'no', retry: 'never', next });
}

// Returns the answer that replaces a run if other batches pay for some of its rows; undefined if none do.
function paidTwice(asked: BatchRequest, checked: CheckedBatch, tools: Tools): Answer | undefined {
  const others = othersThatPay(checked, tools);
  if (others.length === 0) return undefined;
  const text = `Rows of ${checked.name} were paid for, or are being paid for, by ${others.join(', ')}. Nothing was sent. Continue under that name, or call batch_run with repeat to pay for them again.`;
  const answer = errorAnswer(new MgwError('conflict', text, { charged: 'no', retry: 'never' }), 'no');
  return { ...answer, next: statusOf(asked, others), paid_by: others, ...checked.view };
}

function start(tools: Tools, batch: CheckedBatch): void {
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

async function status(asked: BatchRequest, isStrict: boolean, tools: Tools): Promise<Answer> {
  // A run that ends during the check counts as running, since the rows may have been read before its end.
  const running = new Set([...tools.runs.values()].filter(({ isRunning }) => isRunning));
  const { name, view, isOpen, differing } = await tools.checkBatch(asked, tools, 'status');
  const run = tools.runs.get(name);
  const next = (name: string, more = {}): Answer['next'] => ({
    tool: name,
    arguments: { ...asked, ...more },
  });
  if (run !== undefined && (run.isRunning || running.has(run))) {
    const again = next('batch_status', isStrict ? { strict: true } : {});
    return { ...freeSuccess, pending: true, next: again, running: true, ...view };
  }
  if (run?.error !== undefined) return { ...errorAnswer(run.error, 'no'), running: false, ...view };
  if (isStrict && differing !== undefined)
    return { ...errorAnswer(differing, 'no'), running: false, ...view };
  return {
    ...freeSuccess,
    next: isOpen && run === undefined ? next('batch_run') : null,
    running: false,
    ...view,
  };
}

// Returns the answer in place of a run above the amount of `--confirm-over`; undefined if it may start.
async function unconfirmed(
  { name, atMost, request, typed, manifest }: CheckedBatch,
  { context }: Call,
  { confirmation, authority }: Tools,
): Promise<ToolOutcome | undefined> {
  if (confirmation === undefined) return undefined;
  const { over } = confirmation;
  if (atMost !== undefined && compare(parseDecimal(atMost), parseAmount(over)) <= 0) return undefined;
  const amount = atMost ?? 'unknown';
  const message = `The batch ${name}: this may cost ${amount}, more than ${over}.`;
  const command = ['mgw', 'batch', 'run', ...typed, ...(await authority.flags()), '--', manifest];
  return confirmation.ask({ tool: 'batch_run', key: name, request, amount }, message, command, context);
}
