import * as z from 'zod';
import { spendGroups } from '../budget/spend.ts';
import { MgwError, usageError } from '../errors.ts';
import { type Job, jobStates } from '../job.ts';
import { jobView } from '../jobs/view.ts';
import { protocolNames } from '../protocols/registry.ts';
import type { Call } from './calls.ts';
import {
  agentView,
  type Answer,
  errorAnswer,
  nextForJob,
  pendingAnswer,
  refText,
  freeSuccess,
} from './result.ts';
import { tool, type Tools } from './tool.ts';

/** The tools that cannot pay. They list models, jobs and spending, wait for jobs, and save results. */
export const freeTools = [
  tool({
    name: 'models',
    title: 'Models',
    description: 'Lists the models that the key can use, each with its protocols and prices.',
    effect: 'look',
    fields: () => ({
      protocol: z.optional(z.enum([...protocolNames, 'tts']).describe('only models of this protocol')),
    }),
    run: ({ protocol }, call, tools) => models(protocol, call, tools),
  }),
  tool({
    name: 'job',
    title: 'Show a job',
    description: "Returns a job's record, including its request.",
    effect: 'look',
    isLocal: true,
    fields: () => ({ ref: z.string().describe(refText) }),
    run: async ({ ref }, _call, { session }) => {
      const { recordedJob } = await import('../jobs/ref.ts');
      const job = await recordedJob(await session.ledger(), ref);
      return { ...freeSuccess, next: nextForJob(job), job: jobView(job) };
    },
  }),
  tool({
    name: 'jobs',
    title: 'Jobs',
    description:
      'Lists jobs, newest first, including jobs from earlier sessions and jobs that the user started.',
    effect: 'look',
    isLocal: true,
    fields: () => ({
      state: z.optional(z.array(z.enum(jobStates)).describe('only jobs in these states')),
      key: z.optional(
        z
          .array(z.string())
          .describe('only jobs with these keys; intro-* matches all keys that start with intro-'),
      ),
      model: z.optional(z.array(z.string()).describe('only jobs of these models')),
      batch: z.optional(z.string().describe('only jobs of this batch')),
      mismatched: z.optional(z.boolean().describe('only jobs with a file that differs from the request')),
      limit: z.optional(z.int().min(1).max(200).describe('default 20')),
    }),
    run: async ({ limit = 20, ...choice }, _call, { session }) => {
      const { newestJobs } = await import('../jobs/newest.ts');
      const { jobs, more } = await newestJobs(await session.ledger(), choice, limit);
      return { ...freeSuccess, next: null, jobs: jobs.map(agentView), ...(more > 0 && { older: more }) };
    },
  }),
  tool({
    name: 'spend',
    title: 'Spending',
    description: 'Returns the total cost of all jobs.',
    effect: 'look',
    isLocal: true,
    fields: () => ({ by: z.optional(z.enum(spendGroups).describe('grouping (default: model)')) }),
    run: async ({ by = 'model' }, _call, { session }) => {
      const { spendBy } = await import('../flows/spend.ts');
      return { ...freeSuccess, next: null, spend: await spendBy(await session.ledger(), by, '') };
    },
  }),
  tool({
    name: 'budget',
    title: 'Budgets',
    description:
      "Returns this server's budgets, and the amount left in each. Without a budget, nothing can be paid for.",
    effect: 'look',
    isLocal: true,
    fields: () => ({}),
    run: async (_given, _call, { authority, confirmation }) => ({
      ...freeSuccess,
      next: null,
      budgets: await authority.view(),
      ...(confirmation && { confirm_over: confirmation.over }),
    }),
  }),
  tool({
    name: 'wait',
    title: 'Wait for jobs',
    description:
      'Waits until jobs have finished, for at most 50 s. If pending is true, call this tool again. It is free of charge.',
    effect: 'look',
    fields: () => ({
      ref: z.optional(z.string().describe(refText)),
      refs: z.optional(z.array(z.string()).min(1).max(100).describe('a list of refs')),
    }),
    run: ({ ref, refs = [] }, call) => {
      const all = [...refs, ...(ref === undefined ? [] : [ref])];
      if (all.length === 0) throw usageError('ref or refs is required.');
      return wait([...new Set(all)], call);
    },
  }),
  tool({
    name: 'fetch',
    title: 'Save a result',
    description:
      'Waits for a job and saves its file, for at most 50 s. If pending is true, call this tool again. It is free of charge, and never overwrites a file.',
    effect: 'save',
    fields: () => ({
      ref: z.string().describe(refText),
      output: z.optional(
        z
          .string()
          .describe(
            "path in the server's folder, of a file or of a folder that ends in / (default: a file named after the job's id)",
          ),
      ),
      strict: z.optional(
        z.boolean().describe('return an error if the video differs from the request; the file is kept'),
      ),
      mark: z.optional(
        z.boolean().describe('label an MP4 or MP3 as AI-generated (IPTC trainedAlgorithmicMedia)'),
      ),
    }),
    run: fetchJob,
  }),
];

async function models(
  protocol: string | undefined,
  { signals, deadline }: Call,
  { session }: Tools,
): Promise<Answer> {
  const { fetchModels } = await import('../flows/models.ts');
  const { priceSetting } = await import('../flows/prices.ts');
  const settings = await session.settings();
  const all = await fetchModels(session, undefined, {
    signal: signals.soft,
    timeoutMs: deadline.remainingMs(),
  });
  const listed = all
    .filter(({ protocols }) => protocol === undefined || protocols.includes(protocol))
    .map(({ id, protocols, model_versions }) => ({
      id,
      protocols,
      ...(model_versions.length > 0 && { model_versions }),
      prices: Object.fromEntries(
        protocols.map((name) => [name, priceSetting(name, id, settings)?.value ?? 'unknown']),
      ),
    }));
  return { ...freeSuccess, next: null, models: listed };
}

async function wait(all: readonly string[], call: Call): Promise<Answer> {
  const { waitFor } = await import('../flows/fetch.ts');
  const { findJobHere } = await import('../flows/find-job.ts');
  const deps = await call.deps();
  const results = await Promise.all(
    all.map(async (each): Promise<WaitResult> => {
      try {
        const found = await findJobHere(each, deps, ['jobs', 'wait']);
        const onUpdate = ({ id, state, progress }: Job): void =>
          call.reportProgress(`${id} ${state}${progress === undefined ? '' : ` ${progress}%`}`);
        const { job, delivered } = await waitFor(found, call.deadline, deps, { onUpdate });
        await delivered();
        return { ref: each, job };
      } catch (error) {
        if (!(error instanceof MgwError)) throw error;
        return { ref: each, error };
      }
    }),
  );
  return waitAnswer(results);
}

interface WaitResult {
  ref: string;
  job?: Job;
  error?: MgwError;
}

function waitAnswer(results: readonly WaitResult[]): Answer {
  const open = results.filter(({ error }) => error?.code === 'pending' || error?.exitCode === 130);
  const jobs = results.map(({ ref: each, job, error }) => {
    const knownJob = job ?? error?.job;
    const view = knownJob === undefined ? { ref: each } : agentView(knownJob);
    return error === undefined || error.code === 'pending'
      ? view
      : { ...view, problem: errorAnswer(error, 'no').error };
  });
  if (open.length > 0) {
    const refs = open.map(({ ref: each, error }) => error?.job?.id ?? each);
    return { ...pendingAnswer({ tool: 'wait', arguments: { refs } }), jobs };
  }
  const failed = results.find(({ error }) => error !== undefined);
  if (failed?.error !== undefined) return { ...errorAnswer(failed.error, 'no'), jobs };
  const [result] = results;
  return { ...freeSuccess, next: result?.job === undefined ? null : nextForJob(result.job), jobs };
}

interface FetchArguments {
  ref: string;
  output?: string | undefined;
  strict?: boolean | undefined;
  mark?: boolean | undefined;
}

async function fetchJob(
  { ref, output, strict, mark }: FetchArguments,
  call: Call,
  tools: Tools,
): Promise<Answer> {
  const { fetch: fetchResult, planFetches } = await import('../flows/fetch.ts');
  const { fileCount } = await import('../jobs/fetch-place.ts');
  const { pathsAt } = await import('../jobs/output.ts');
  const deps = await call.deps();
  const isFolder = output === undefined || /[\\/]$/.test(output);
  const path = await tools.root.file(output ?? '.', 'output');
  const target = { kind: 'file', path: isFolder ? `${path}/` : path } as const;
  const [planned] = (await planFetches([ref], target, deps, ['jobs', 'fetch'])).values();
  if (planned === undefined || 'error' in planned) throw planned?.error ?? usageError(`No such job: ${ref}.`);
  if (planned.target.kind !== 'stdout')
    for (const each of pathsAt(planned.target.path, fileCount(planned.job)))
      await tools.root.file(each, 'output');
  try {
    const onUpdate = ({ id, state }: Job): void => call.reportProgress(`${id} ${state}`);
    const onProgress = ({ bytes }: { bytes: number }): void =>
      call.reportProgress(`${planned.job.id}: ${bytes} bytes`);
    const options = { force: false, deadline: call.deadline, strict, mark };
    const { job, files, delivered } = await fetchResult(planned, options, deps, { onUpdate, onProgress });
    await delivered();
    return { ...freeSuccess, next: null, job: agentView(job), files };
  } catch (error) {
    if (!(error instanceof MgwError) || error.code !== 'pending') throw error;
    const job = error.job ?? planned.job;
    const sameOptions = { output, ...(strict && { strict }), ...(mark && { mark }) };
    const next = { tool: 'fetch', arguments: { ref: job.id, ...sameOptions } };
    return { ...pendingAnswer(next), job: agentView(job) };
  }
}
