import type { Command } from 'commander';
import { exitCodes, MgwError, toMgwError } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import { failedError } from '../../../jobs/errors.ts';
import { isTooNew } from '../../../jobs/grace.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import type { Protocol, QueryVerdict } from '../../../protocols/protocol.ts';
import { jobLine } from '../../output/human.ts';
import { jobView } from '../../../jobs/view.ts';
import { errorView } from '../../output/json.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Context } from '../../context.ts';
import type { Run } from '../../action.ts';
import { configured } from '../../../flows/protocols.ts';
import { columnsOf } from '../../io.ts';
import { readRefs } from '../../refs.ts';

/** `mgw video X status REF...`: one query for each job, no waiting. */
export function registerStatus(command: Command, protocol: Protocol, run: Run): void {
  command
    .argument('<refs...>', 'job ids, @key, @last, or handles of the gateway; - reads them from stdin')
    .addHelpText(
      'after',
      `\nExamples:${['@last', '@last --json', '-q @last'].map((rest) => `\n  $ mgw video ${protocol.name} status ${rest}`).join('')}`,
    )
    .action((refs: string[]) => run(command, (context) => status(context, protocol, refs)));
}

interface Seen {
  ref: string;
  job?: Job;
  error?: MgwError;
}

async function status(context: Context, registered: Protocol, refs: string[]): Promise<Outcome> {
  const protocol = configured(registered, await context.settings());
  const deps = await context.jobDeps();
  const seen: Seen[] = [];
  for (const ref of await readRefs(refs, context.io))
    seen.push({ ref, ...(await look(ref, protocol, deps)) });
  const jobs = seen.map(({ job, error }) => ({
    ...(job && jobView(job)),
    ...(error && { query: errorView(error) }),
  }));
  const text = seen
    .flatMap(({ job }) => (job ? [jobLine(job, columnsOf(context.io.stdout))] : []))
    .join('\n');
  if (seen.length === 1) return { json: { job: jobs[0] }, text, error: seen[0]?.error };
  const bad = seen.filter(({ error }) => error !== undefined);
  for (const { ref, error } of bad) context.progress.note(`${ref}: ${error?.message ?? ''}`);
  return { json: { jobs }, text, exitCode: bad.length > 0 ? exitCodes.partial : exitCodes.ok };
}

// A query that fails is the command's error; a job that is still running is none.
async function look(ref: string, protocol: Protocol, deps: JobDeps): Promise<Omit<Seen, 'ref'>> {
  let job: Job | undefined;
  try {
    const [{ jobFor }, { hasResult, observe }, { noResult, withoutHandle }] = await Promise.all([
      import('../../../jobs/ref.ts'),
      import('../../../jobs/observe.ts'),
      import('../../../jobs/errors.ts'),
    ]);
    job = await jobFor(ref, protocol, deps);
    if (job.state === 'sending') return { job };
    if (job.state === 'unknown' || job.handle === undefined) return { job, error: withoutHandle(job) };
    const seen = await observe(job, protocol, deps);
    job = seen.job;
    const { verdict } = seen;
    if (verdict.kind === 'observation' && verdict.state === 'succeeded' && !hasResult(verdict))
      return { job, error: noResult(job, verdict) };
    if (verdict.kind === 'observation' && verdict.warning !== undefined) deps.note(verdict.warning);
    return { job, error: problemOf(job, verdict, deps.clock.now()) };
  } catch (error) {
    return { job, error: toMgwError(error) };
  }
}

/** What is wrong by the verdict of one query, at `now`; undefined for a job that goes on or has succeeded. */
export function problemOf(job: Job, verdict: QueryVerdict, now: number): MgwError | undefined {
  if (verdict.kind === 'observation') return job.state === 'failed' ? failedError(job) : undefined;
  if (verdict.kind === 'again' && verdict.isWell) return undefined;
  const { code, message, requestId } = verdict.failure;
  const kind = verdict.kind === 'missing' && isTooNew(job, now) ? 'again' : verdict.kind;
  const exit = { unauthorized: 'auth', missing: 'incomplete', again: 'unavailable' } as const;
  return new MgwError(code, message, {
    exit: exit[kind],
    charged: kind === 'again' ? 'no' : 'yes',
    retry: kind === 'missing' ? 'never' : 'safe',
    requestId,
  });
}
