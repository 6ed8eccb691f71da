import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { deadlineIn } from '../../../clock.ts';
import { pendingError } from '../../../jobs/errors.ts';
import type { Target } from '../../../jobs/target.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Context } from '../../context.ts';
import type { Run } from '../../action.ts';
import { jobView } from '../../output/json.ts';
import type { Outcome } from '../../output/outcome.ts';
import { configured } from '../../protocols.ts';
import {
  addOutputOptions,
  addWaitOptions,
  checkStdout,
  targetOf,
  type OutputOptions,
} from '../../wait-options.ts';
import { problemOf } from './status.ts';

interface FetchOptions extends OutputOptions {
  wait?: boolean;
}

/** `mgw video X fetch REF`: waits with backoff polling, then saves; `--no-wait` asks once. */
export function registerFetch(group: Command, protocol: Protocol, run: Run): void {
  const command = group
    .command('fetch')
    .description('wait for a job and save its result')
    .argument('<ref>', 'job id, @key, @last, or a handle of the gateway')
    .option('--no-wait', 'exit 8 where the job has not finished');
  addOutputOptions(command, 'a file, a folder, or - for stdout (default: JOB.mp4 in this folder)');
  addWaitOptions(command);
  command
    .addHelpText('after', `\nExamples:\n  $ mgw video ${protocol.name} fetch @last -o out.mp4`)
    .action((ref: string) => run(command, (context) => fetch(context, protocol, ref, command.opts())));
}

async function fetch(
  context: Context,
  registered: Protocol,
  ref: string,
  options: FetchOptions,
): Promise<Outcome> {
  checkStdout(context, options);
  const [{ videoJob }, { beginRun, deliver }, { observe }] = await Promise.all([
    import('./video-job.ts'),
    import('./deliver.ts'),
    import('../../../jobs/observe.ts'),
  ]);
  const settings = await context.settings();
  const protocol = configured(registered, settings);
  const deps = await context.jobDeps();
  const job = await videoJob(ref, protocol, deps);
  const run = await beginRun(job, 'file', deps);
  if (options.wait === false && job.state !== 'succeeded') {
    const seen = await observe(job, protocol, deps);
    if (seen.job.state === 'queued' || seen.job.state === 'running') {
      const error = problemOf(seen.job, seen.verdict, context.clock.now()) ?? pendingError(seen.job);
      await deps.ledger.append(job.id, { type: 'detached', run, exit_code: error.exitCode });
      return { json: { job: jobView(seen.job) }, error };
    }
  }
  return deliver(context, protocol, (await deps.ledger.read(job.id)) ?? job, deps, {
    run,
    ask: 'file',
    deadline: deadlineIn(settings.timeoutMs.value, context.clock),
    target: await fetchTarget(options, job.id),
    force: options.force ?? false,
    atOnce: true,
  });
}

// Without -o the file is named after the job, in this folder; a folder given by -o is saved into.
async function fetchTarget(options: OutputOptions, id: string): Promise<Target> {
  const target = targetOf(options) ?? { kind: 'file', path: `${id}.mp4` };
  if (target.kind !== 'file') return target;
  const isFolder =
    target.path.endsWith('/') || (await stat(target.path).catch(() => undefined))?.isDirectory() === true;
  return isFolder ? { kind: 'folder', path: target.path } : target;
}
