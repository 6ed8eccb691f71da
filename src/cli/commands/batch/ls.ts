import type { Command } from 'commander';
import { fleetStateOf } from '../../../batch/fleet/fleet-state.ts';
import { knownBatches } from '../../../batch/known-batches.ts';
import { currencyOf } from '../../../flows/prices.ts';
import { addUp } from '../../../flows/spend.ts';
import { ledgerFolder } from '../../../flows/settings.ts';
import type { Job } from '../../../job.ts';
import { newestJobs } from '../../../jobs/newest.ts';
import { isUnaccepted, shownState } from '../../../jobs/reconcile.ts';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { columnsOf } from '../../io.ts';
import { ago } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import { type Column, fittedTable } from '../../output/table.ts';

interface ListedBatch {
  name: string;
  /**
   * The manifest's absolute path; `-` if it was read from standard input; null if the batch was enqueued from another
   * machine.
   */
  file: string | null;
  /** The number of rows per state of their latest accepted job. Excludes rows that were never submitted. */
  states: Record<string, number>;
  /** The amount spent on the batch, calculated as in `mgw spend`; `unknown` if a price is unknown. */
  spent: string;
  /** The creation time of the newest of these jobs, in ISO 8601; null if there is no job. */
  last: string | null;
}

const examples = `
Examples:
  $ mgw batch ls
  $ mgw batch ls --json`;

/** `mgw batch ls`: lists the batches that were run or enqueued, newest first. */
export function registerBatchLs(command: Command, run: Run): void {
  command.addHelpText('after', examples).action(() => run(command, ls));
}

async function ls(context: Context): Promise<Outcome> {
  const ledger = await context.ledger();
  const settings = await context.settings();
  const files = new Map((await knownBatches(ledgerFolder(settings))).map(({ name, file }) => [name, file]));
  const queued = (await fleetStateOf(ledger)?.query<{ name: string }>('select name from {batches}')) ?? [];
  const names = new Set([...files.keys(), ...queued.map(({ name }) => name)]);
  const latest = names.size === 0 ? new Map<string, Map<string, Job>>() : await latestJobs(context, names);
  const { groups } = await addUp(ledger, 'batch', '');
  const totals = new Map(groups.map(([name, { spent: sum }]) => [name, sum.total]));
  const batches = [...names]
    .map((name): ListedBatch => {
      const jobs = [...(latest.get(name)?.values() ?? [])];
      const last = jobs.reduce<string | null>(
        (newest, job) => (newest === null || job.created_at > newest ? job.created_at : newest),
        null,
      );
      const total = totals.get(name) ?? '0';
      return { name, file: files.get(name) ?? null, states: countStates(jobs), spent: total, last };
    })
    .sort((one, other) => (other.last ?? '').localeCompare(one.last ?? ''));
  if (batches.length === 0)
    context.progress.note(
      `No batches have been run on this machine.${settings.sandbox.value ? '' : " To list the sandbox's batches: mgw --sandbox batch ls"}`,
    );
  if (context.globals.quiet) return { json: { batches }, text: batches.map(({ name }) => name).join('\n') };
  const text =
    batches.length === 0
      ? ''
      : listing(batches, context.clock.now(), columnsOf(context.io.stdout), currencyOf(settings));
  return { json: { batches }, text };
}

// Returns the latest accepted job of each row, or its latest job if none was accepted. A retried row has several jobs,
// with the keys NAME/ID, NAME/ID/2, and so on.
async function latestJobs(
  context: Context,
  names: ReadonlySet<string>,
): Promise<Map<string, Map<string, Job>>> {
  const { jobs } = await newestJobs(await context.ledger(), {}, Infinity);
  const jobsByBatch = new Map<string, Map<string, Job>>();
  for (const job of jobs) {
    const [name = '', ...rest] = job.key?.split('/') ?? [];
    if (!names.has(name)) continue;
    const id = rest.join('/').replace(/\/\d+$/, '');
    const jobs = jobsByBatch.get(name) ?? new Map<string, Job>();
    jobsByBatch.set(name, jobs);
    const later = jobs.get(id);
    if (later === undefined || (isUnaccepted(later) && !isUnaccepted(job))) jobs.set(id, job);
  }
  return jobsByBatch;
}

function countStates(jobs: readonly Job[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const state of jobs.map(shownState)) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function listing(
  batches: readonly ListedBatch[],
  now: number,
  width: number | undefined,
  currency: string,
): string {
  const columns: Column<ListedBatch>[] = [
    { head: 'name', cell: ({ name }) => name, minWidth: 12 },
    { head: 'rows', cell: ({ states }) => statesText(states) },
    { head: `spent (${currency})`, cell: ({ spent }) => spent },
    { head: 'last job', cell: ({ last }) => (last === null ? undefined : ago(last, now)), rank: 1 },
    { head: 'file', cell: ({ file }) => file ?? undefined, minWidth: 16, rank: 2 },
  ];
  return fittedTable(columns, batches, width);
}

function statesText(states: Record<string, number>): string | undefined {
  const parts = Object.entries(states).map(([state, count]) => `${count} ${state}`);
  return parts.length === 0 ? undefined : parts.join(', ');
}
