import * as z from 'zod';
import { spendGroups } from '../budget/spend.ts';
import { jobStates } from '../job.ts';
import { jobView } from '../jobs/view.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, nextForJob, refText, well } from './result.ts';
import { tool, type Tools } from './tool.ts';

/** The read-only tools: models, jobs and money. */
export const lookTools = [
  tool({
    name: 'models',
    title: 'Models',
    description: 'Lists the models that the key may use, each with its protocols and prices.',
    effect: 'look',
    fields: () => ({
      protocol: z.optional(z.string().describe('only models of this protocol: a, b, c or tts')),
    }),
    run: ({ protocol }, call, tools) => models(protocol, call, tools),
  }),
  tool({
    name: 'job',
    title: 'One job',
    description: 'Shows a job as it is recorded, with its request.',
    effect: 'look',
    isLocal: true,
    fields: () => ({ ref: z.string().describe(refText) }),
    run: async ({ ref }, _call, { session }) => {
      const { recordedJob } = await import('../jobs/ref.ts');
      const job = await recordedJob(await session.ledger(), ref);
      return { ...well, next: nextForJob(job), job: jobView(job) };
    },
  }),
  tool({
    name: 'jobs',
    title: 'Jobs',
    description: 'Lists jobs, newest first: also those of earlier sessions and of people.',
    effect: 'look',
    isLocal: true,
    fields: () => ({
      state: z.optional(z.array(z.enum(jobStates)).describe('only jobs in these states')),
      key: z.optional(
        z.array(z.string()).describe('only jobs of these keys; intro-* for all with this start'),
      ),
      model: z.optional(z.array(z.string()).describe('only jobs of these models')),
      batch: z.optional(z.string().describe('only jobs of the batch of this name')),
      mismatched: z.optional(z.boolean().describe('only jobs with a file that differs from the request')),
      limit: z.optional(z.int().min(1).max(200).describe('default 20')),
    }),
    run: async ({ limit = 20, ...choice }, _call, { session }) => {
      const { newestJobs } = await import('../jobs/newest.ts');
      const { shown, more } = await newestJobs(await session.ledger(), choice, limit);
      return { ...well, next: null, jobs: shown.map(agentView), ...(more > 0 && { older: more }) };
    },
  }),
  tool({
    name: 'spend',
    title: 'What was spent',
    description: 'Adds up what the jobs cost.',
    effect: 'look',
    isLocal: true,
    fields: () => ({ by: z.optional(z.enum(spendGroups).describe('default model')) }),
    run: async ({ by = 'model' }, _call, { session }) => {
      const { spendBy } = await import('../flows/spend.ts');
      return { ...well, next: null, spend: await spendBy(await session.ledger(), by, '') };
    },
  }),
  tool({
    name: 'budget',
    title: 'What may be spent',
    description: 'Shows the budgets of this server, and what is left. Without one, nothing can be paid for.',
    effect: 'look',
    isLocal: true,
    fields: () => ({}),
    run: async (_given, _call, { authority, confirmation }) => ({
      ...well,
      next: null,
      budgets: await authority.view(),
      ...(confirmation && { confirm_over: confirmation.over }),
    }),
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
  const shown = all
    .filter(({ protocols }) => protocol === undefined || protocols.includes(protocol))
    .map(({ id, protocols, model_versions }) => ({
      id,
      protocols,
      ...(model_versions.length > 0 && { model_versions }),
      prices: Object.fromEntries(
        protocols.map((name) => [name, priceSetting(name, id, settings)?.value ?? 'unknown']),
      ),
    }));
  return { ...well, next: null, models: shown };
}
