import type { Command } from 'commander';
import { toMgwError } from '../../../errors.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Run } from '../../command-tree.ts';
import { examplesFor, handleModelOption, handleProtocol, wordsOf } from '../video/status.ts';
import type { Context } from '../../context.ts';
import { type Outcome, runForRefs, withOwnSignals } from '../../output/outcome.ts';
import { readRefs } from '../../input.ts';
import { addFetchOptions, checkStdout, targetOf, type OutputOptions } from '../../wait-options.ts';
import { withOutput } from '../../../flows/next.ts';

interface FetchOptions extends OutputOptions {
  wait?: boolean;
}

const explanation = `
A template builds each file name from its job: {id} {key} {model} {protocol} {seed} {slug} {index} {name} {n} {ext}, where
{slug} is made from the prompt, {index} counts the REFs, {name} is the batch, and {n} counts the files of one job.
If -o is a folder, the file is named after the job's key, or after its id if it has no key. Fetching is free.

Examples:
  $ mgw jobs fetch @last
  $ mgw jobs ls -q --since 1d | mgw jobs fetch - -o out/
  $ mgw jobs fetch @last -o 'out/{protocol}-{slug}-{id}.{ext}'`;

/**
 * `mgw jobs fetch REF...`: waits for jobs of any protocol and saves their results. With `--no-wait`, queries each job
 * once.
 */
export function registerFetch(command: Command, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last; - reads them from stdin');
  addFetchOptions(command, 'JOB.EXT');
  command
    .addHelpText('after', explanation)
    .action((refs: string[]) =>
      run(command, (context) => fetchJobs(context, refs, command.opts(), ['jobs', 'fetch']), 'runs jobs'),
    );
}

/**
 * `mgw video [X] fetch REF...`: waits for one protocol's jobs and saves their results. Accepts handles that are not in
 * the ledger.
 */
export function registerFetchOf(command: Command, protocol: Protocol | undefined, run: Run): void {
  command.argument('<refs...>', 'job ids, @key, @last or gateway handles; - reads them from stdin');
  if (protocol === undefined) command.addOption(handleModelOption());
  addFetchOptions(command, 'JOB.mp4');
  const examples = ['@last -o out.mp4', '@last -o clips/', '@last --json --timeout 10m'];
  command.addHelpText('after', examplesFor(wordsOf('fetch', protocol), examples)).action((refs: string[]) =>
    run(
      command,
      async (context) => {
        const chosenProtocol = protocol ?? (await handleProtocol(context, command.opts()));
        return fetchJobs(context, refs, command.opts(), wordsOf('fetch', chosenProtocol), chosenProtocol);
      },
      'runs jobs',
    ),
  );
}

// The maximum number of jobs in progress. High enough that a few slow jobs do not block the others; low enough that a
// thousand downloads do not start at once.
const maxConcurrent = 32;

async function fetchJobs(
  context: Context,
  refArguments: string[],
  options: FetchOptions,
  words: readonly string[],
  protocol?: Protocol,
): Promise<Outcome> {
  checkStdout(context, options);
  const deadline = await context.deadline();
  const refs = await readRefs(refArguments, context.io, deadline);
  const deps = await context.jobDeps();
  const [{ fetch, planFetches }, { deliveredOutcome, hooksOf }] = await Promise.all([
    import('../../../flows/fetch.ts'),
    import('../video/delivered.ts'),
  ]);
  const { force = false, strict, mark, wait } = options;
  const plan = await planFetches(refs, targetOf(options), deps, words, protocol);
  const fetchOne = (ref: string): Promise<Outcome> => {
    const each = plan.get(ref);
    if (each === undefined || 'error' in each) {
      const error = each && withOutput(toMgwError(each.error), options);
      return Promise.resolve({ json: {}, error });
    }
    const hooks = { ...hooksOf(context), stdout: context.io.stdout };
    return deliveredOutcome(context, options, () =>
      fetch(each, { force, deadline, strict, mark, wait }, withOwnSignals(deps), hooks),
    );
  };
  return runForRefs([...plan.keys()], fetchOne, context, maxConcurrent);
}
