import type { McpServer, ServerContext } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { compare, parseAmount, parseDecimal } from '../decimal.ts';
import { toMgwError } from '../errors.ts';
import type { Allowance } from '../payment/reserve.ts';
import type { AskedBatch, CheckedBatch, StartedRun } from './batches.ts';
import type { Answered } from './paying.ts';
import { type Answer, answerSchema, errorAnswer, well } from './result.ts';
import type { Tools } from './tools.ts';

const batchFields = {
  manifest: z.string().describe('path of the rows: .csv, .jsonl or .yaml'),
  name: z.optional(z.string().describe('names the batch and so its jobs; by default the name of the file')),
};
const outputField = z.optional(z.string().describe('where files go, such as clips/{id}.{ext}'));

/** Adds `batch_plan`, `batch_run` and `batch_status`. */
export function addBatchTools(server: McpServer, tools: Tools): void {
  const schemas = {
    inputSchema: z.strictObject({ ...batchFields, output: outputField }),
    outputSchema: answerSchema,
  };
  const look = { readOnlyHint: true, openWorldHint: true };
  server.registerTool(
    'batch_plan',
    {
      title: 'Plan a batch',
      description: 'Checks every row of a batch, and tells what running it would cost. Nothing is sent.',
      ...schemas,
      annotations: look,
    },
    (asked, context) =>
      tools.calls.run(context, async () => {
        const { view, refusal, isOpen } = await tools.checkBatch(asked, tools.root, 'plan');
        if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
        return { ...well, next: isOpen ? { tool: 'batch_run', arguments: asked } : null, ...view };
      }),
  );
  server.registerTool(
    'batch_run',
    {
      title: 'Run a batch',
      description:
        'Starts the open rows of a batch and returns: this costs money. The same batch name and row id are always the same job: call again after a timeout or an error, and no row is paid for twice. Then call batch_status.',
      ...schemas,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
    },
    (asked, context) => started(tools, asked, context),
  );
  server.registerTool(
    'batch_status',
    {
      title: 'State of a batch',
      description: 'Tells the state of every row, and whether this server is still running the batch.',
      ...schemas,
      annotations: { ...look, openWorldHint: false },
    },
    (asked, context) => tools.calls.run(context, () => status(tools, asked)),
  );
}

async function started(tools: Tools, asked: AskedBatch, context: ServerContext): Promise<Answered> {
  const status = { tool: 'batch_status', arguments: { ...asked } };
  let asking: Answered | undefined;
  const result = await tools.calls.run(context, async () => {
    const checked = await tools.checkBatch(asked, tools.root, 'plan');
    const { name, view, refusal, isOpen } = checked;
    if (refusal !== undefined) return { ...errorAnswer(refusal, 'no'), ...view };
    if (!isOpen) return { ...well, next: null, ...view };
    if (!isRunning(tools, name)) asking = await unconfirmed(tools, asked, checked, context);
    if (asking !== undefined) return { ...well, next: null };
    // Checked again: another call may have started the batch while the person was asked.
    if (isRunning(tools, name)) return { ...well, retry: 'resume', pending: true, next: status, ...view };
    await tools.authority.check();
    start(tools, checked);
    return { ok: true, charged: 'maybe', retry: 'resume', pending: true, next: status, ...view };
  });
  return asking ?? result;
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

async function status(tools: Tools, asked: AskedBatch): Promise<Answer> {
  const { name, view, isOpen } = await tools.checkBatch(asked, tools.root, 'status');
  const run = tools.runs.get(name);
  const again = (tool: string): Answer['next'] => ({ tool, arguments: { ...asked } });
  if (run?.isRunning === true)
    return { ...well, pending: true, next: again('batch_status'), running: true, ...view };
  if (run?.error !== undefined) return { ...errorAnswer(run.error, 'no'), running: false, ...view };
  return { ...well, next: isOpen && run === undefined ? again('batch_run') : null, running: false, ...view };
}

// What is answered instead of a run above the amount of `--confirm-over`; undefined if it may start.
async function unconfirmed(
  { confirmation }: Tools,
  { manifest, name: given, output }: AskedBatch,
  { name, atMost, request }: CheckedBatch,
  context: ServerContext,
): Promise<Answered | undefined> {
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
