import type { McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';
import { spendGroups } from '../budget/spend.ts';
import { fetchModels } from '../flows/models.ts';
import { priceSetting } from '../flows/prices.ts';
import { spendBy } from '../flows/spend.ts';
import { newestJobs } from '../jobs/newest.ts';
import { recordedJob } from '../jobs/ref.ts';
import { jobView } from '../jobs/view.ts';
import type { Call } from './calls.ts';
import { agentView, type Answer, answerSchema, nextForJob, refText, well } from './result.ts';
import type { Tools } from './tools.ts';

const local = { readOnlyHint: true, openWorldHint: false };

/** Adds the tools that look: at models, jobs and money. */
export function addLookTools(server: McpServer, tools: Tools): void {
  addModels(server, tools);
  addJobs(server, tools);
  addMoney(server, tools);
}

function addModels(server: McpServer, tools: Tools): void {
  const { calls } = tools;
  server.registerTool(
    'models',
    {
      title: 'Models',
      description: 'Lists the models that the key may use, each with its protocol and price.',
      inputSchema: z.strictObject({
        protocol: z.optional(z.string().describe('only models of this protocol')),
      }),
      outputSchema: answerSchema,
      annotations: { readOnlyHint: true, openWorldHint: true },
    },
    ({ protocol }, context) => calls.run(context, (call) => models(tools, protocol, call)),
  );
}

function addJobs(server: McpServer, tools: Tools): void {
  const { calls } = tools;
  server.registerTool(
    'job',
    {
      title: 'One job',
      description: 'Shows a job as it is recorded, with its request.',
      inputSchema: z.strictObject({ ref: z.string().describe(refText) }),
      outputSchema: answerSchema,
      annotations: local,
    },
    (given, context) =>
      calls.run(context, async () => {
        const job = await recordedJob(await tools.session.ledger(), given.ref);
        return { ...well, next: nextForJob(job), job: jobView(job) };
      }),
  );
  server.registerTool(
    'jobs',
    {
      title: 'Jobs',
      description: 'Lists jobs, newest first.',
      inputSchema: z.strictObject({
        state: z.optional(z.array(z.string()).describe('only jobs in these states')),
        key: z.optional(
          z.array(z.string()).describe('only jobs of these keys; intro-* for all with this start'),
        ),
        model: z.optional(z.array(z.string())),
        batch: z.optional(z.string()),
        limit: z.optional(z.int().min(1).max(200).describe('default 20')),
      }),
      outputSchema: answerSchema,
      annotations: local,
    },
    ({ limit = 20, ...choice }, context) =>
      calls.run(context, async () => {
        const { shown, more } = await newestJobs(await tools.session.ledger(), choice, limit);
        return { ...well, next: null, jobs: shown.map(agentView), ...(more > 0 && { older: more }) };
      }),
  );
}

function addMoney(server: McpServer, tools: Tools): void {
  const { calls } = tools;
  server.registerTool(
    'spend',
    {
      title: 'What was spent',
      description: 'Adds up what the jobs cost.',
      inputSchema: z.strictObject({ by: z.optional(z.enum(spendGroups)) }),
      outputSchema: answerSchema,
      annotations: local,
    },
    ({ by = 'model' }, context) =>
      calls.run(context, async () => ({
        ...well,
        next: null,
        spend: await spendBy(await tools.session.ledger(), by, ''),
      })),
  );
  server.registerTool(
    'budget',
    {
      title: 'What may be spent',
      description:
        'Shows the budgets of this server, and what is left. Without one, nothing can be paid for.',
      inputSchema: z.strictObject({}),
      outputSchema: answerSchema,
      annotations: local,
    },
    (_, context) =>
      calls.run(context, async () => ({
        ...well,
        next: null,
        budgets: await tools.authority.view(),
        ...(tools.confirmation && { confirm_over: tools.confirmation.over }),
      })),
  );
}

async function models(
  tools: Tools,
  protocol: string | undefined,
  { signals, deadline }: Call,
): Promise<Answer> {
  const settings = await tools.session.settings();
  const all = await fetchModels(tools.session, undefined, {
    signal: signals.soft,
    timeoutMs: deadline.leftMs(),
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
