import * as z from 'zod';
import { MgwError, usageError } from '../errors.ts';
import type { Job } from '../job.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, errorAnswer, nextForJob, pendingAnswer, refText, well } from './result.ts';
import { tool, type Tools } from './tool.ts';

/** `wait` and `fetch`: they wait for jobs and save results, and cannot pay. */
export const waitTools = [
  tool({
    name: 'wait',
    title: 'Wait for jobs',
    description:
      'Waits until jobs have finished, for at most 50 s; if pending is true, call it again. It pays nothing.',
    effect: 'look',
    fields: () => ({
      ref: z.optional(z.string().describe(refText)),
      refs: z.optional(z.array(z.string()).min(1).max(100).describe('several of them')),
    }),
    run: ({ ref, refs = [] }, call) => {
      const all = [...refs, ...(ref === undefined ? [] : [ref])];
      if (all.length === 0) throw usageError('Give ref or refs.');
      return wait([...new Set(all)], call);
    },
  }),
  tool({
    name: 'fetch',
    title: 'Save a result',
    description:
      'Waits for a job and saves its file, for at most 50 s; if pending is true, call it again. It pays nothing, and overwrites nothing.',
    effect: 'save',
    fields: () => ({
      ref: z.string().describe(refText),
      output: z.optional(
        z
          .string()
          .describe(
            "path of the file, or of a folder with / at its end, in the server's folder; by default the job's id names the file",
          ),
      ),
      strict: z.optional(
        z.boolean().describe('ends in an error if the video differs from the request; the file is kept'),
      ),
      mark: z.optional(z.boolean().describe('writes into an MP4 or MP3 that an algorithm made it')),
    }),
    run: (given, call, tools) => fetched(given, call, tools),
  }),
];

async function wait(all: readonly string[], call: Call): Promise<Answer> {
  const { waitFor } = await import('../flows/fetch.ts');
  const { findJobHere } = await import('../flows/find-job.ts');
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
  if (open.length > 0) {
    const refs = open.map(({ ref: each, error }) => error?.job?.id ?? each);
    return { ...pendingAnswer({ tool: 'wait', arguments: { refs } }), jobs };
  }
  const [first] = failed;
  if (first?.error !== undefined) return { ...errorAnswer(first.error, 'no'), jobs };
  const [end] = ends;
  return { ...well, next: end?.job === undefined ? null : nextForJob(end.job), jobs };
}

interface FetchArguments {
  ref: string;
  output?: string | undefined;
  strict?: boolean | undefined;
  mark?: boolean | undefined;
}

async function fetched(
  { ref, output, strict, mark }: FetchArguments,
  call: Call,
  tools: Tools,
): Promise<Answer> {
  const { fetch: fetchResult, planFetches } = await import('../flows/fetch.ts');
  const deps = await call.deps();
  const isFolder = output !== undefined && /[\\/]$/.test(output);
  const path = await tools.root.file(output ?? '.', 'output');
  const target = { kind: output === undefined || isFolder ? 'folder' : 'file', path } as const;
  const [planned] = (await planFetches([ref], target, deps, ['jobs', 'fetch'])).values();
  if (planned === undefined || 'error' in planned) throw planned?.error ?? usageError(`No such job: ${ref}.`);
  if (planned.target.kind !== 'stdout') await tools.root.file(planned.target.path, 'output');
  try {
    const onUpdate = ({ id, state }: Job): void => call.tell(`${id} ${state}`);
    const onProgress = ({ bytes }: { bytes: number }): void => call.tell(`${planned.job.id}: ${bytes} bytes`);
    const wishes = { force: false, deadline: call.deadline, strict, mark };
    const { job, files, delivered } = await fetchResult(planned, wishes, deps, { onUpdate, onProgress });
    await delivered();
    return { ...well, next: null, job: agentView(job), files };
  } catch (error) {
    if (!(error instanceof MgwError) || error.code !== 'pending') throw error;
    const job = error.job ?? planned.job;
    const same = {
      ...(output !== undefined && { output }),
      ...(strict && { strict }),
      ...(mark && { mark }),
    };
    const next = { tool: 'fetch', arguments: { ref: job.id, ...same } };
    return { ...pendingAnswer(next), job: agentView(job) };
  }
}
