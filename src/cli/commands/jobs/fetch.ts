import type { Command } from 'commander';
import { findJob, jobFor, missing } from '../../../jobs/ref.ts';
import { configured } from '../../../flows/protocols.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addFetchOptions } from '../../wait-options.ts';
import type { FetchOptions } from './fetch-jobs.ts';

const explanation = `
A template names each file by its job: {id} {key} {model} {protocol} {seed} {slug} {index} {name} {n} {ext}, where
{slug} is made of the prompt, {index} counts the REFs, {name} is the batch, and {n} counts the files of one job.
In a folder a job is called by its key, or by its id where it has none. Nothing that is fetched is paid for.

Examples:
  $ mgw jobs fetch @last
  $ mgw jobs ls -q --since 1d | mgw jobs fetch - -o out/
  $ mgw jobs fetch @last -o 'out/{protocol}-{slug}-{id}.{ext}'`;

/** `mgw jobs fetch REF...`: waits for jobs of any protocol and saves their results. */
export function registerFetch(command: Command, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last; - reads them from stdin');
  addFetchOptions(command, 'JOB.EXT');
  command
    .addHelpText('after', explanation)
    .action((refs: string[]) => run(command, (context) => fetch(context, refs, command.opts())));
}

async function fetch(context: Context, refs: string[], options: FetchOptions): Promise<Outcome> {
  const [{ fetchJobs }, { protocols }, settings] = await Promise.all([
    import('./fetch-jobs.ts'),
    import('../../../protocols/registry.ts'),
    context.settings(),
  ]);
  return fetchJobs(context, refs, options, async (ref, deps) => {
    const job = (await findJob(deps.ledger, ref)) ?? missing(ref);
    if (job.protocol === 'tts') return { job };
    const protocol = configured(protocols[job.protocol], settings);
    return { job: await jobFor(job.id, protocol, deps), protocol };
  });
}
