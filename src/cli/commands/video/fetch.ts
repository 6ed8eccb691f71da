import type { Command } from 'commander';
import type { Protocol } from '../../../protocols/protocol.ts';
import { configured } from '../../../flows/protocols.ts';
import type { Run } from '../../action.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addFetchOptions } from '../../wait-options.ts';
import type { FetchOptions } from '../jobs/fetch-jobs.ts';

/** `mgw video X fetch REF...`: waits with backoff polling, then saves; `--no-wait` asks once. */
export function registerFetch(command: Command, protocol: Protocol, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last, or handles of the gateway; - reads them from stdin');
  addFetchOptions(command, 'JOB.mp4');
  command
    .addHelpText(
      'after',
      `\nExamples:${['@last -o out.mp4', '@last -o clips/', '@last --json --timeout 10m'].map((rest) => `\n  $ mgw video ${protocol.name} fetch ${rest}`).join('')}`,
    )
    .action((refs: string[]) => run(command, (context) => fetch(context, protocol, refs, command.opts())));
}

async function fetch(
  context: Context,
  registered: Protocol,
  refs: string[],
  options: FetchOptions,
): Promise<Outcome> {
  const [{ fetchJobs }, { jobFor }, settings] = await Promise.all([
    import('../jobs/fetch-jobs.ts'),
    import('../../../jobs/ref.ts'),
    context.settings(),
  ]);
  const protocol = configured(registered, settings);
  return fetchJobs(context, refs, options, async (ref, deps) => ({
    job: await jobFor(ref, protocol, deps),
    protocol,
  }));
}
