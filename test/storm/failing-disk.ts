import type { CliJson } from '../support/cli.ts';
import { failures, type Crash } from './crash.ts';
import type { Created } from './recording.ts';
import { onCreated, onStage, prepared, Reruns, type Found, type Stage, type Swept } from './reruns.ts';
import type { Scenario } from './scenarios.ts';
import { restore, treeOf } from './tree.ts';
import { Workers, type Ran } from './workers.ts';

/** Selects the operations that fail, and how. If absent, each operation fails in every way. */
export interface Part {
  /** If set, only every n-th operation fails, each in a single way. `from` shifts the first of them. */
  every?: number;
  from?: number;
}

/**
 * Runs a scenario repeatedly, each time with a later disk operation that fails, until a run ends before that operation.
 * After each run, another process repeats the command on the same disk until the command ends. `worker` is the path of
 * the built worker.
 */
export function sweepFailures(
  scenario: Scenario,
  worker: string,
  { every, from = 0 }: Part = {},
): Promise<Swept> {
  return onStage(scenario, async (stage) => {
    const played = await prepared(scenario, stage);
    const contents = new Map<string, Buffer>();
    const { user, gateway } = stage;
    const look = (): Found['tree'] => treeOf(user.cwd, (hash, bytes) => void contents.set(hash, bytes));
    const before = look();
    const [found, violations]: [Found[], string[]] = [[], []];
    const isStruck = async (crash: Crash, run: (args: string[]) => Promise<Ran>): Promise<boolean> => {
      restore(before, contents, user.cwd);
      const created = createdBy(stage, scenario, played.before);
      const ran = await run([...played.args, '--json']);
      created.end();
      if (ran.operations < crash.at) return false;
      const where = `${crash.how} at operation ${crash.at}`;
      violations.push(...oddEnd(ran, stage, scenario).map((odd) => `${scenario.name}, ${where}: ${odd}`));
      const output = ran.stdout + ran.stderr;
      const printed = ran.code === 0 ? ran.stdout : '';
      found.push({ where, tree: look(), created: created.all, printed, said: output });
      return true;
    };
    await new Workers(worker, user.cwd).inOne(async (run) => {
      for (let at = 1 + (every === undefined ? 0 : from % every); ; at += every ?? 1)
        for (const how of every === undefined ? failures : [failures[at % failures.length] ?? 'full']) {
          const crash = { at, how };
          const task = { env: user.env, crash, isHurried: true };
          if (!(await isStruck(crash, (args) => run({ args, ...task })))) return;
        }
    });
    gateway.script.submit.length = 0;
    const reruns = new Reruns(scenario, stage, played, contents);
    for (const each of found) await reruns.on(each);
    return { moments: found.length, disks: reruns.disks, violations: [...violations, ...reruns.violations] };
  });
}

// Resets the gateway to its state before the run. Returns the list of tasks that the gateway creates from now on.
function createdBy(
  { gateway }: Stage,
  { answer }: Scenario,
  before: readonly Created[],
): { all: Created[]; end: () => void } {
  gateway.created.splice(0, Infinity, ...before.map(({ handle }) => handle));
  gateway.seen.length = 0;
  gateway.script.submit.splice(0, Infinity, ...(answer === undefined ? [] : [answer]));
  const all: Created[] = [];
  return { all, end: onCreated(gateway, (created) => all.push(created)) };
}

// Returns violations of the rule that a failure before the request must report the disk as its cause.
function oddEnd({ code, stdout }: Ran, { gateway }: Stage, { ends = 0, prepare }: Scenario): string[] {
  const { length } = gateway.submissions;
  if (length > 0 || prepare !== undefined)
    return [0, 7, 10, ends].includes(code) ? [] : [`it ended with ${code}: ${stdout}`];
  const { error } = JSON.parse(stdout) as Partial<CliJson>;
  const isTold = error?.code === 'local_io' && error.charged === 'no' && error.retry === 'safe';
  return code === 10 && isTold ? [] : [`nothing was sent, and it ended with ${code}: ${stdout}`];
}
