import type { McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { MgwError, usageError } from '../errors.ts';
import { fetch as fetchResult, planFetches, waitFor } from '../flows/fetch.ts';
import { findJobHere } from '../flows/find-job.ts';
import type { Job } from '../job.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, answerSchema, errorAnswer, nextForJob, refText, well } from './result.ts';
import type { Tools } from './tools.ts';

/** Adds `wait` and `fetch`: they wait for jobs and save results, and cannot pay. */
export function addWaitTools(server: McpServer, tools: Tools): void {
  const { calls } = tools;
  server.registerTool(
    'wait',
    {
      title: 'Wait for jobs',
      description:
        'Waits until jobs have finished, for at most 50 s; if pending is true, call it again. It pays nothing.',
      inputSchema: z.strictObject({
        ref: z.string().describe(refText).optional(),
        refs: z.array(z.string()).min(1).max(100).describe('several of them').optional(),
      }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    (given, context) => calls.run(context, (call) => wait(refsOf(given), call)),
  );
  server.registerTool(
    'fetch',
    {
      title: 'Save a result',
      description:
        'Waits for a job and saves its file, for at most 50 s; if pending is true, call it again. It pays nothing.',
      inputSchema: z.strictObject({
        ref: z.string().describe(refText),
        output: z.optional(z.string().describe('path of the file or folder, below the root')),
      }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
    },
    (given, context) => calls.run(context, (call) => fetched(tools, given.ref, given.output, call)),
  );
}

function refsOf({
  ref: one,
  refs: several,
}: {
  ref?: string | undefined;
  refs?: string[] | undefined;
}): string[] {
  const all = [...(several ?? []), ...(one === undefined ? [] : [one])];
  if (all.length === 0) throw usageError('Give ref or refs.');
  return [...new Set(all)];
}

async function wait(all: readonly string[], call: Call): Promise<Answer> {
  const deps = await call.deps();
  const ends = await Promise.all(
    all.map(async (each): Promise<Ended> => {
      try {
        const found = await findJobHere(each, deps, ['jobs', 'wait']);
        const onUpdate = ({ id, state, progress }: Job): void =>
          call.tell(`${id} ${state}${progress === undefined ? '' : ` ${progress}%`}`);
        const { job, delivered } = await waitFor(found, call.deadline, deps, { onUpdate });
        await delivered();
        return { ref: each, job };
      } catch (error) {
        if (!(error instanceof MgwError)) throw error;
        return { ref: each, error };
      }
    }),
  );
  return endOf(ends);
}

interface Ended {
  ref: string;
  job?: Job;
  error?: MgwError;
}

function endOf(ends: readonly Ended[]): Answer {
  const open = ends.filter(({ error }) => error?.code === 'pending' || error?.exitCode === 130);
  const failed = ends.filter((end) => end.error !== undefined && !open.includes(end));
  const jobs = ends.map(({ ref: each, job, error }) => {
    const seen = job ?? error?.job;
    const shown = seen === undefined ? { ref: each } : agentView(seen);
    return error === undefined || error.code === 'pending'
      ? shown
      : { ...shown, problem: errorAnswer(error, 'no').error };
  });
  if (open.length > 0)
    return {
      ...well,
      retry: 'resume',
      pending: true,
      next: { tool: 'wait', arguments: { refs: open.map(({ ref: each, error }) => error?.job?.id ?? each) } },
      jobs,
    };
  const [first] = failed;
  if (first?.error !== undefined) return { ...errorAnswer(first.error, 'no'), jobs };
  const [end] = ends;
  return { ...well, next: end?.job === undefined ? null : nextForJob(end.job), jobs };
}

async function fetched(tools: Tools, given: string, output: string | undefined, call: Call): Promise<Answer> {
  const deps = await call.deps();
  const isFolder = output !== undefined && /[\\/]$/.test(output);
  const path = await tools.root.file(output ?? '.', 'output');
  const target = { kind: output === undefined || isFolder ? 'folder' : 'file', path } as const;
  const [planned] = (await planFetches([given], target, deps, ['jobs', 'fetch'])).values();
  if (planned === undefined || 'error' in planned)
    throw planned?.error ?? usageError(`No such job: ${given}.`);
  if (planned.target.kind !== 'stdout') await tools.root.file(planned.target.path, 'output');
  try {
    const onUpdate = ({ id, state }: Job): void => call.tell(`${id} ${state}`);
    const onProgress = ({ bytes }: { bytes: number }): void => call.tell(`${planned.job.id}: ${bytes} bytes`);
    const wishes = { force: false, deadline: call.deadline };
    const { job, files, delivered } = await fetchResult(planned, wishes, deps, { onUpdate, onProgress });
    await delivered();
    return { ...well, next: null, job: agentView(job), files };
  } catch (error) {
    if (!(error instanceof MgwError) || error.code !== 'pending') throw error;
    const job = error.job ?? planned.job;
    const next = { tool: 'fetch', arguments: { ref: job.id, ...(output !== undefined && { output }) } };
    return { ...well, retry: 'resume', pending: true, next, job: agentView(job) };
  }
}
