import * as z from 'zod';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { toMgwError } from '../errors.ts';
import type { Allowance } from '../payment/reserve.ts';
import type { Call } from './calls.ts';
import { type Answer, errorAnswer, type Outcome, pendingAnswer, well } from './result.ts';
import { type AskedBatch, type CheckedBatch, type StartedRun, tool, type Tools } from './tool.ts';

const fields = {
  manifest: z
    .string()
    .describe(
      "path of the manifest in the server's folder: .csv, .jsonl or .yaml. A row has an id and the arguments of submit_video without key, or of speak (text, speaker)",
    ),
  name: z.optional(z.string().describe('names the batch and so its jobs; by default the name of the file')),
  output: z.optional(z.string().describe('where files go, such as clips/{id}.{ext}')),
};

/** `batch_plan`, `batch_run` and `batch_status`. */
export const batchTools = [
  tool({
    name: 'batch_plan',
    title: 'Plan a batch',
    description: 'Checks every row of a batch, and tells what running it would cost. Nothing is sent.',
    effect: 'look',
    fields,
    run: async (asked, _call, tools) => {
      const { view, refusal, isOpen } = await tools.checkBatch(asked, tools.root, 'plan');
      if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
      return { ...well, next: isOpen ? { tool: 'batch_run', arguments: { ...asked } } : null, ...view };
    },
  }),
  tool({
    name: 'batch_run',
    title: 'Run a batch',
    description:
      'Starts the open rows of a batch and returns: this costs money. The same batch name and row id are always the same job: call again after a timeout or an error, and no row is paid for twice. Never choose another name to try again. Then call batch_status.',
    effect: 'pay',
    fields,
    run: (asked, call, tools) => started(asked, call, tools),
  }),
  tool({
    name: 'batch_status',
    title: 'State of a batch',
    description:
      'Tells the state of the batch and of every row that is not done, and whether this server is still running it. Call it until pending is gone.',
    effect: 'look',
    isLocal: true,
    fields,
    run: (asked, _call, tools) => status(asked, tools),
  }),
];

async function started(asked: AskedBatch, call: Call, tools: Tools): Promise<Outcome> {
  const checked = await tools.checkBatch(asked, tools.root, 'plan');
  const { name, view, refusal, isOpen } = checked;
  if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
  if (!isOpen) return { ...well, next: null, ...view };
  const instead = isRunning(tools, name) ? undefined : await unconfirmed(asked, checked, call, tools);
  if (instead !== undefined) return instead;
  const next = { tool: 'batch_status', arguments: { ...asked } };
  // Checked again: another call may have started the batch while the person was asked.
  if (isRunning(tools, name)) return { ...pendingAnswer(next), ...view };
  await tools.authority.check();
  start(tools, checked);
  return { ...pendingAnswer(next, 'maybe'), ...view };
}

function isRunning({ runs }: Tools, name: string): boolean {
  return runs.get(name)?.isRunning === true;
}

function start(tools: Tools, batch: CheckedBatch): void {
  const state: StartedRun = { isRunning: true };
  tools.runs.set(batch.name, state);
  tools.calls.background(async (signals) => {
    try {
      const deps = await tools.session.jobDeps();
      const allowances = (): Promise<Allowance[]> => tools.authority.allowances();
      const error = await batch.run({ ...deps, signals, allowances });
      if (error !== undefined) state.error = error;
    } catch (error) {
      state.error = toMgwError(error);
    } finally {
      state.isRunning = false;
    }
  });
}

async function status(asked: AskedBatch, tools: Tools): Promise<Answer> {
  const { name, view, isOpen } = await tools.checkBatch(asked, tools.root, 'status');
  const run = tools.runs.get(name);
  const next = (name: string): Answer['next'] => ({ tool: name, arguments: { ...asked } });
  if (run?.isRunning === true)
    return { ...well, pending: true, next: next('batch_status'), running: true, ...view };
  if (run?.error !== undefined) return { ...errorAnswer(run.error, 'no'), running: false, ...view };
  return { ...well, next: isOpen && run === undefined ? next('batch_run') : null, running: false, ...view };
}

// What is answered instead of a run above the amount of `--confirm-over`; undefined if it may start.
async function unconfirmed(
  { manifest, name: given, output }: AskedBatch,
  { name, atMost, request }: CheckedBatch,
  { context }: Call,
  { confirmation }: Tools,
): Promise<Outcome | undefined> {
  if (confirmation === undefined) return undefined;
  const { over } = confirmation;
  if (atMost !== undefined && compare(parseDecimal(atMost), parseAmount(over)) <= 0) return undefined;
  const amount = atMost ?? 'unknown';
  const message = `The batch ${name}: this may cost ${amount}, more than ${over}.`;
  const flags = [given && `--name=${given}`, output && `--output=${output}`].filter(
    (each) => each !== undefined,
  );
  const command = ['mgw', 'batch', 'run', ...flags, '--', manifest];
  return confirmation.ask({ tool: 'batch_run', key: name, request, amount }, message, command, context);
}
