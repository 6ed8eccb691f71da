import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import type { Job } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { shownState } from '../../src/jobs/reconcile.ts';
import { readBill } from '../../src/sandbox/bill.ts';
import { speechChunks } from '../../src/sandbox/media/speech.ts';
import { listTasks, type Task } from '../../src/sandbox/tasks.ts';
import { videoOf } from '../../src/sandbox/files.ts';
import { intentIn, outputOf, tokenOf, type Ended } from './drive.ts';
import { stormKey, type World } from './world.ts';

/** The violations by kind. Each entry describes where the violation occurred. */
export interface Violations {
  'double charges': string[];
  'lost handles': string[];
  'wrong outputs': string[];
  'damaged records': string[];
  'key leaks': string[];
  bugs: string[];
  'unended jobs': string[];
}

/** Checks a finished storm against the gateway's own count and the files on disk. */
export async function checkStorm(world: World, ended: readonly Ended[]): Promise<Violations> {
  const ledger = await openFileLedger(world.state, Date.now);
  const jobs = (await Promise.all((await ledger.ids()).map((id) => ledger.read(id)))).filter(
    (job) => job !== undefined,
  );
  const tasks = listTasks(world.gateway);
  return {
    'double charges': doubleCharges(world, tasks, ended),
    'lost handles': [...lostHandles(tasks, jobs), ...unrecordedCharges(world, ended, jobs)],
    'wrong outputs': wrongOutputs(world, tasks, ended),
    'damaged records': jobs.flatMap((job) => (job.record.damaged > 0 ? [job.id] : [])),
    'key leaks': keyLeaks(world),
    bugs: bugs(world),
    'unended jobs': unended(world, ended, jobs),
  };
}

function doubleCharges(world: World, tasks: readonly Task[], ended: readonly Ended[]): string[] {
  const intents = new Map<string, string[]>();
  for (const { fingerprint, task } of readBill(world.gateway))
    intents.set(fingerprint, [...(intents.get(fingerprint) ?? []), task]);
  return [...intents.values()].flatMap((charged) => {
    const task = tasks.find(({ id }) => id === charged[0]);
    const intent = ended.find(({ plan }) => plan.n === intentIn(task?.prompt ?? ''));
    const allowed = intent?.plan.way === 'retakes' ? intent.runs : 1;
    const name = task === undefined ? 'speech' : tokenOf(intentIn(task.prompt));
    return charged.slice(allowed).map((id) => `${name} (${intent?.plan.way ?? ''}): ${id}`);
  });
}

/** Returns the handle for queries of a task (specification 4). */
function handleOf({ area, id, model }: Task): string {
  return area === 'a' ? `models/${model}/operations/${id}` : id;
}

function lostHandles(tasks: readonly Task[], jobs: readonly Job[]): string[] {
  const handles = new Set(jobs.map(({ handle }) => handle));
  const doubts = countBy(jobs.filter(isUnknown), intentOf);
  return tasks.flatMap((task) => {
    const intent = intentIn(task.prompt);
    const remaining = doubts.get(intent) ?? 0;
    if (handles.has(handleOf(task)) || jobs.some((job) => hasReplyWith(job, task.id))) return [];
    doubts.set(intent, remaining - 1);
    return remaining > 0 ? [] : [`${tokenOf(intent)}: ${handleOf(task)}`];
  });
}

/**
 * Whether the job has a recorded response that contains this id. The next command on the job evaluates the response.
 */
function hasReplyWith({ record }: Job, id: string): boolean {
  return record.pendingReply?.text.includes(id) === true;
}

/** Reports charges for speech that no job records as sent, because the next run of the same intent would pay again. */
function unrecordedCharges(world: World, ended: readonly Ended[], jobs: readonly Job[]): string[] {
  const charged = readBill(world.gateway).filter(({ area }) => area === 'tts').length;
  const unsent = ['prepared', 'rejected'];
  const known = jobs.filter(({ protocol, state }) => protocol === 'tts' && !unsent.includes(state)).length;
  const speech = ended.some(({ plan }) => plan.kind === 'tts');
  return speech && charged > known ? [`${charged} charges of speech, ${known} jobs that know of one`] : [];
}

function isUnknown(job: Job): boolean {
  return shownState(job) === 'unknown';
}

function intentOf({ request }: Job): number {
  return intentIn(JSON.stringify(request ?? ''));
}

function countBy<T>(items: readonly T[], nameOf: (item: T) => number): Map<number, number> {
  const counts = new Map<number, number>();
  for (const item of items) counts.set(nameOf(item), (counts.get(nameOf(item)) ?? 0) + 1);
  return counts;
}

function wrongOutputs(world: World, tasks: readonly Task[], ended: readonly Ended[]): string[] {
  return ended.flatMap(({ plan, codes }) => {
    const path = outputOf(plan, world);
    if (!existsSync(path)) return codes.includes(0) && plan.way !== 'retakes' ? [`${path} is missing`] : [];
    const task = tasks.find(({ prompt }) => intentIn(prompt) === plan.n);
    const source = plan.kind === 'tts' ? speechOf(plan.n) : task && videoOf(task);
    return source !== undefined && Buffer.compare(readFileSync(path), source) === 0 ? [] : [path];
  });
}

function speechOf(n: number): Uint8Array {
  return Buffer.concat([...speechChunks({ text: tokenOf(n), format: 'mp3', sampleRate: 24_000 })]);
}

/**
 * The key in plain text, in hexadecimal and in Base64. The Base64 is reduced to its middle, which does not
 * depend on the text around the key.
 */
const spellings = [stormKey, Buffer.from(stormKey).toString('hex')].concat(
  [0, 1, 2].map((offset) =>
    Buffer.from('x'.repeat(offset) + stormKey)
      .toString('base64')
      .slice(4, -4),
  ),
);

function keyLeaks(world: World): string[] {
  const holds = (text: string): boolean => spellings.some((spelling) => text.includes(spelling));
  const files = filesBelow(world.root).filter((path) => !relative(world.gateway, path).startsWith('keys'));
  const messages = world.runs
    .filter(({ stdout, stderr }) => holds(stdout + stderr))
    .map(({ stderr }) => stderr);
  return [...files.filter((path) => holds(path) || holds(readFileSync(path, 'latin1'))), ...messages];
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return lstatSync(path).isDirectory() ? filesBelow(path) : [path];
  });
}

function bugs(world: World): string[] {
  const isBug = ({ code, stderr }: World['runs'][number]): boolean =>
    code === 1 || /^\s+at .*[:(]|This is a bug/m.test(stderr);
  return world.runs.filter(isBug).map(({ code, stderr }) => `exit ${code}: ${stderr}`);
}

// Reports runs with an exit code that a storm cannot cause. Such an exit code reveals a defect in mgw or in the storm.
function unended(world: World, ended: readonly Ended[], jobs: readonly Job[]): string[] {
  return ended.flatMap(({ plan, codes }) => {
    // A command that was killed after its last output has succeeded. A rerun finds its file, and reports this before it
    // pays.
    const isDelivered = jobs.some(
      (job) => intentOf(job) === plan.n && job.record.goals.some((goal) => goal.deliveredAt !== undefined),
    );
    const fine = [0, 7, ...(plan.kind === 'tts' ? [5, 9] : []), ...(isDelivered ? [10] : [])];
    const odd = codes.filter((code) => !fine.includes(code));
    if (odd.length === 0) return [];
    const last = world.runs.findLast(({ code, stderr }) => odd.includes(code) && stderr !== '');
    return [
      `${tokenOf(plan.n)} (${plan.kind}, ${plan.way}) ended with ${odd.join(', ')}: ${last?.stderr ?? ''}`,
    ];
  });
}
