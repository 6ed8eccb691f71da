import { isDeepStrictEqual } from 'node:util';
import { failing, type Created } from './gateway.ts';
import { Machine, type Ended, type Incident } from './machine.ts';
import { clips, pieces, type Plan } from './plan.ts';
import type { Threads } from './threads.ts';

/** The result of playing a schedule. */
export interface Played {
  /** Descriptions of the broken promises; empty if none was broken. */
  violations: string[];
  log: string[];
}

interface PrintedDocument {
  exit_code?: number;
  job?: { id: string; key?: string; handle?: string; state: string };
  jobs?: { id: string; key?: string; handle?: string; state: string; request?: { prompt?: string } }[];
  files?: { path: string }[];
  removed?: string[];
  budgets?: { limit: string; spent: string; reserved: string }[];
  error?: { code: string; message: string; next?: string[] };
}

const price = 1;
const limit = 1;
const gateway = 'http://127.0.0.1:9';
const env = {
  MGW_STATE_DIR: '/state',
  MGW_CONFIG_DIR: '/config',
  MGW_API_KEY: 'sk-canary-4d3c2b1a0f9e8d7c',
  MGW_BASE_URL: gateway,
  MGW_TIMEOUT: '20m',
  HOME: '/home',
};
const config = {
  profiles: { default: { prices: { c: { 'vendor-h3-mini': `video=${price}` } } } },
};

/** Plays a schedule, repeats each command until it succeeds, and checks mgw's promises. */
export async function play(plan: Plan, threads: Threads, trace = false): Promise<Played> {
  const machine = new Machine(threads, plan.seed, env, trace);
  try {
    return { violations: await violationsOf(plan, machine), log: machine.log };
  } catch (error) {
    return { violations: [(error as Error).stack ?? String(error)], log: machine.log };
  }
}

async function violationsOf({ commands, incidents, isExact }: Plan, machine: Machine): Promise<string[]> {
  const { disk } = machine;
  for (const folder of ['/home', '/config', '/tmp', '/clips']) disk.mkdir(folder, 0o755);
  const write = (path: string, text: string): void =>
    void disk.write(disk.open(path, 0o101, 0o600), Buffer.from(text), null);
  write('/config/config.json', JSON.stringify(config));
  write(clips.path, clips.rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const hasBudget = commands.some((args) => args.includes('--budget-name'));
  if (hasBudget) await machine.runOne('budget', 'set', 'little', String(limit));
  disk.sync();
  const violations: string[] = [];
  const ran = await machine.run(commands, incidents);
  const { missed } = machine;
  disk.room = Infinity;
  // If the schedule lets time pass, a process may run until its deadline although nothing blocks it.
  const timed = has(incidents, 'time passes') ? ran.map((ended) => ({ ...ended, ms: 0 })) : ran;
  violations.push(...timed.flatMap(oddEnd), ...wholeFiles(machine));
  if (!has(incidents, 'disk full') && !has(incidents, 'index lost')) violations.push(...ran.flatMap(robbed));
  const removals = ran.filter(({ code, args }) => args[1] === 'rm' && code !== 2).length;
  // A prune may have removed jobs even if it was killed.
  const pruned = ran.some(({ args }) => args[1] === 'prune') ? machine.traffic.created.length : 0;
  // A killed process may have recorded the statement that nothing was created, or the decision to pay again.
  const isGuess = (args: string[]): boolean =>
    args.includes('--not-created') || (args.includes('--resubmit') && gatewayOf(args) === gateway);
  const guesses = ran.filter(({ code, args }) => isGuess(args) && code !== 2).length;
  for (const { args } of ran) if (args.includes('--adopt')) await confirm(machine, args[2] ?? '', gateway);
  const people = { machine, violations, commands, incidents, guesses };
  const after: Ended[] = [];
  for (const ended of ran) after.push(isOver(ended) ? ended : await finish(ended, people));
  violations.push(
    ...charges(machine, commands, removals, people.guesses),
    ...(await handles(machine, removals + pruned + guesses)),
    ...wholeFiles(machine),
  );
  const isCut = has(incidents, 'power cut');
  if (!isCut && after.some(({ code }) => code === exitOfFailure))
    violations.push(...(await revoked(machine)));
  // The handle that a user adopts may be wrong, and remains reserved until the gateway has returned its task.
  const isAdopted = commands.some((args) => args.includes('--adopt'));
  if (hasBudget) violations.push(...(await budgets(machine, removals, isCut || isAdopted)));
  // A retry does not change the first take, even if the first take's process ended before it cleaned up.
  const isRetried = commands.some((args) => args[1] === 'retry');
  if (!isRetried && !isCut && after.every(({ code }) => code === 0)) violations.push(...leftovers(machine));
  for (const { args, code, stdout } of after)
    if (code !== 'killed') violations.push(...delivered(args, documentOf(stdout), machine));
  // Missed calls come last, because the first violation determines how a schedule is shrunk.
  return [...violations, ...(isExact === true ? missed : [])];
}

function documentOf(stdout: string): PrintedDocument {
  try {
    return JSON.parse(stdout) as PrintedDocument;
  } catch {
    return {};
  }
}

// Whether a command needs no rerun. A killed command needs none if it had already printed its success.
function isOver({ args, code, stdout }: Ended): boolean {
  // These commands are not repeated, because another retry, for example, would make another take.
  const isOnce = ['rm', 'prune', 'resolve', 'retry'].includes(args[1] ?? '');
  return isOnce || code === 0 || code === exitOfFailure || documentOf(stdout).exit_code === 0;
}

const exitOfFailure = 5;
const fitting = [0, 2, 3, 4, 6, 7, 8, 9, 10, 12, 'killed'];
/**
 * The maximum run time in ms. The gateway completes each task after one poll, so only a process that another
 * process blocks runs longer.
 */
const longestMs = 15 * 60_000;

function oddEnd({ args, code, stdout, stderr, ms }: Ended): string[] {
  const { error, job } = documentOf(stdout);
  const shown = `mgw ${args.join(' ')} ended with ${code}: ${error?.message ?? stderr}`;
  const isFailing = args.some((arg) => arg.endsWith('storm'));
  if (code === exitOfFailure && isFailing)
    return job?.state === 'failed' && error?.message === failing.message
      ? []
      : [`a ${job?.state} job failed: ${shown}`];
  // `status` also succeeds while the job is sent or is running.
  const isUnfinished = args[2] === 'status' && job?.state !== 'succeeded';
  if (code === 0 && isFailing && !isUnfinished) return [`a failed job succeeded: ${shown}`];
  if (!fitting.includes(code) && !(isBatch(args) && code === 11)) return [shown];
  // A command line that mgw refuses would simulate nothing, so it is reported.
  if (error?.next?.at(-1) === '--help') return [shown];
  if (ms > longestMs) return [`after ${Math.round(ms / 60_000)} minutes, ${shown}`];
  if (/\b(is|was) (lost|damaged)\b/i.test(error?.message ?? '')) return [`a false loss: ${shown}`];
  return [];
}

// Reports exit 10 for any reason except an existing output. Unless the disk was full or the index lost, no other reason
// is possible, because no process takes over a live process's output.
function robbed({ args, code, stdout }: Ended): string[] {
  const { error } = documentOf(stdout);
  return code === 10 && error?.code !== 'output_exists'
    ? [`its job was taken away: mgw ${args.join(' ')}: ${error?.message}`]
    : [];
}

/** The state of the people who run the commands. */
interface People {
  machine: Machine;
  violations: string[];
  commands: readonly string[][];
  incidents: readonly Incident[];
  /** How often a person wrongly stated that nothing was created. For speech, a person cannot know this. */
  guesses: number;
}

/** Repeats a command, and runs the commands that its errors suggest, until it succeeds. */
async function finish({ args }: Ended, people: People): Promise<Ended> {
  const { machine, violations, commands, incidents } = people;
  if (isBatch(args)) return finishBatch(args, people);
  const key = keyOf(args);
  const isContested = commands.some(
    (each) => key !== undefined && keyOf(each) === key && !isSameBody(each, args),
  );
  let ended: Ended | undefined;
  for (let runs = 0; runs < 5; runs += 1) {
    ended = await machine.runOne(...args);
    violations.push(...oddEnd(ended));
    const { error, job } = documentOf(ended.stdout);
    if (ended.code === 0 || ended.code === exitOfFailure) return ended;
    // The budget is too small for the job, or the job was removed.
    if (ended.code === 12 || (ended.code === 2 && ['fetch', 'wait'].includes(args[1] ?? ''))) return ended;
    if (ended.code === 2 && error?.code === 'conflict' && isContested) return ended;
    // After a removal or a wrong guess, a result may exist that no job records.
    const mayExist = key === undefined || people.guesses > 0 || commands.some((each) => each[1] === 'rm');
    if (ended.code === 10 && error?.code === 'output_exists' && mayExist) return ended;
    if (ended.code === 9 && args[0] === 'tts') return ended;
    if (ended.code === 7) {
      const isFalse = incidents.every(({ what }) => harmless.includes(what));
      if (isFalse) violations.push(`a false doubt: ${error?.message}`);
      if (error?.next?.includes('jobs') !== true) violations.push(`no way out of ${error?.message}`);
      if (await resolve(job?.id ?? error?.next?.[3] ?? '', args, machine)) people.guesses += 1;
    } else if (ended.code !== 6 && ended.code !== 8) break;
  }
  violations.push(
    `mgw ${args.join(' ')} is blocked: ${ended?.code} ${documentOf(ended?.stdout ?? '').error?.message ?? ended?.stderr}`,
  );
  return ended as Ended;
}

// Repeats a batch until it ends. A person resolves each row in doubt.
async function finishBatch(args: string[], people: People): Promise<Ended> {
  const { machine, violations, commands, incidents } = people;
  const hasRemoval = commands.some((each) => each[1] === 'rm');
  for (let runs = 1; ; runs += 1) {
    const ended = await machine.runOne(...args);
    violations.push(...oddEnd(ended));
    const inDoubt = (await jobsOf(machine)).filter(({ state }) => state === 'unknown');
    if (inDoubt.length === 0 && (ended.code === 0 || ended.code === 12)) return ended;
    // After a removal, a file that no job records may exist.
    if (ended.code === 2 && hasRemoval && ended.stderr.includes('already exists')) return ended;
    if (runs === 5) {
      violations.push(`mgw ${args.join(' ')} is blocked: ${ended.code} ${ended.stderr}`);
      return ended;
    }
    const isFalse = incidents.every(({ what }) => harmless.includes(what));
    for (const { id, request } of inDoubt) {
      if (isFalse) violations.push(`a false doubt: ${id}`);
      await resolve(id, ['video', 'c', 'submit', request?.prompt ?? ''], machine);
    }
  }
}

const harmless = [
  ...['switch', 'next starts', 'starts in a wait', 'starts last'],
  ...['answer slow', 'index lost', 'hook hidden'],
];

function isBatch([command]: string[]): boolean {
  return command === 'batch';
}

function isBook(args: string[]): boolean {
  return args.includes('--split');
}

function keyOf(args: string[]): string | undefined {
  return args.includes('--key') ? args[args.indexOf('--key') + 1] : undefined;
}

function promptOf(args: string[]): string | undefined {
  return args[0] === 'tts' ? args[1] : args[2] === 'submit' ? args[3] : undefined;
}

function gatewayOf(args: string[]): string | undefined {
  return args.includes('--base-url') ? args[args.indexOf('--base-url') + 1] : gateway;
}

function isSameBody(one: string[], other: string[]): boolean {
  return promptOf(one) === promptOf(other) && gatewayOf(one) === gatewayOf(other);
}

// Resolves a job like a person who checks the gateway's list of tasks. Speech does not appear in the list, so the
// answer may be wrong. Returns true if the answer was wrong and a charge was lost.
async function resolve(id: string, args: string[], machine: Machine): Promise<boolean> {
  // Delivers all requests first, because a person checks only when no request is in transit.
  for (const request of machine.traffic.underWay()) machine.traffic.arrive(request);
  const handles = (await jobsOf(machine)).map(({ handle }) => handle);
  const task = machine.traffic.created.find(
    (created) => nameOf(created, args) !== undefined && !handles.includes(created.handle),
  );
  const adopts = task !== undefined && args[0] !== 'tts';
  await machine.runOne(
    'jobs',
    'resolve',
    id,
    ...(adopts ? ['--adopt', task.handle] : ['--not-created']),
    ...['--base-url', gatewayOf(args) ?? '', '--json'],
  );
  if (adopts) await confirm(machine, id, gatewayOf(args) ?? '');
  return task !== undefined && !adopts;
}

// An adopted task counts as spent only after the gateway has returned it.
async function confirm(machine: Machine, ref: string, url: string): Promise<void> {
  await machine.runOne('video', 'c', 'status', ref, '--base-url', url, '--json');
}

async function jobsOf(machine: Machine): Promise<NonNullable<PrintedDocument['jobs']>> {
  return documentOf((await machine.runOne('jobs', 'ls', '--json')).stdout).jobs ?? [];
}

/** Returns the submissions that a command requests, named by key or else by prompt. */
function submissionsOf(args: string[]): { name: string; prompt: string }[] {
  if (isBatch(args)) return clips.rows.map(({ id, prompt }) => ({ name: `clips/${id}`, prompt }));
  const prompt = promptOf(args);
  if (isBook(args)) return pieces.map((piece) => ({ name: piece, prompt: piece }));
  return prompt === undefined ? [] : [{ name: keyOf(args) ?? prompt, prompt }];
}

// Returns the name of the submission that created a task. A key belongs to one submission, regardless of its body.
function nameOf({ prompt, origin }: Created, args: string[]): string | undefined {
  return gatewayOf(args) === origin
    ? submissionsOf(args).find((each) => each.prompt === prompt)?.name
    : undefined;
}

/** Reports charges beyond those that the commands requested, and charges by another gateway. */
function charges(
  { traffic: { created } }: Machine,
  commands: readonly string[][],
  removals: number,
  guesses: number,
): string[] {
  const allowed = new Map<string, number>();
  for (const [at, args] of commands.entries()) {
    // A piece is never paid for twice, like a job with a key.
    const isNamed = args.includes('--key') || isBatch(args) || isBook(args);
    // A second run of a command with the same output joins the first run or finds its file, so it requests nothing.
    const isSame = args.includes('-o') && commands.findIndex((each) => isDeepStrictEqual(each, args)) < at;
    const retries = commands.filter(([, command]) => command === 'retry').length;
    for (const { name } of submissionsOf(args))
      allowed.set(
        name,
        isNamed ? 1 + removals + guesses + retries : (allowed.get(name) ?? 0) + (isSame ? 0 : 1),
      );
  }
  const names = created.map((each) =>
    commands.map((args) => nameOf(each, args)).find((name) => name !== undefined),
  );
  return [
    ...created.flatMap(({ prompt, origin }, at) =>
      names[at] === undefined ? [`${prompt} was charged at another gateway, ${origin}`] : [],
    ),
    ...[...allowed].flatMap(([name, max]) => {
      const { length } = names.filter((each) => each === name);
      return length > max ? [`${name} was charged ${length} times; the maximum is ${max}`] : [];
    }),
  ];
}

/** Reports tasks whose handle is not in the ledger. */
async function handles(machine: Machine, removals: number): Promise<string[]> {
  const jobs = await jobsOf(machine);
  const handles = jobs.map(({ handle }) => handle);
  const lost = machine.traffic.created.filter(
    ({ handle, prompt }) => !handles.includes(handle) && !isSpeech(prompt),
  );
  // If its process died, a job remains `sending` until the next command reads the job and puts it in doubt.
  const unknown = jobs.filter(({ state }) => state === 'unknown' || state === 'sending').length;
  // Of two equal tasks, a person may have adopted the one that belongs to another job.
  const doubled = handles.filter(
    (handle, at) => handle !== undefined && handles.indexOf(handle) !== at,
  ).length;
  return lost.length > removals + unknown + doubled
    ? [`the handles ${lost.map(({ handle }) => handle).join(', ')} are lost`]
    : [];
}

/** Reports failed tasks that are not recorded as failed. After a power cut, the record may be lost. */
async function revoked(machine: Machine): Promise<string[]> {
  const jobs = (await jobsOf(machine)).filter(({ key }) => key === 'storm');
  return jobs.flatMap(({ state }) => (state === 'failed' ? [] : [`the failed job is recorded as ${state}`]));
}

function isSpeech(prompt: string): boolean {
  return prompt === 'a word' || pieces.includes(prompt);
}

/** Reports output files that are incomplete. */
function wholeFiles({ disk, traffic }: Machine): string[] {
  return [...disk.files()].flatMap(([path, bytes]) => {
    if (!/^\/home\/\w+\.(mp[34]|pcm)$/.test(path)) return [];
    const isWhole = path.endsWith('.pcm')
      ? isJoined(bytes, traffic.created)
      : traffic.created.some((created) => created.bytes.equals(bytes));
    return isWhole ? [] : [`${path} is not whole: ${bytes.length} bytes`];
  });
}

// Whether the bytes are those of one take of each piece, in order.
function isJoined(bytes: Buffer, created: readonly Created[]): boolean {
  const takes = pieces.map((piece) => created.filter(({ prompt }) => prompt === piece));
  const [first = [], second = []] = takes;
  return first.some((one) => second.some((other) => Buffer.concat([one.bytes, other.bytes]).equals(bytes)));
}

function delivered(args: string[], { exit_code, files = [] }: PrintedDocument, { disk }: Machine): string[] {
  if (isBatch(args)) {
    if (args[1] !== 'run') return [];
    const paths = clips.rows.map(({ id }) => `/home/${id}.mp4`);
    return exit_code === 0 ? paths.filter((path) => !disk.files().has(path)).map((path) => `no ${path}`) : [];
  }
  const output = args[args.indexOf('-o') + 1];
  if (exit_code !== undefined || !args.includes('-o') || output === undefined) return [];
  return disk.files().has(output) || files.length === 0 ? [] : [`${output} was delivered, and is not there`];
}

/**
 * Reports budgets that are exceeded, or that do not include the charges. After a power cut, no process can be proven
 * dead, so reservations remain. The budget of a removed job still includes any amount that may have been charged.
 */
async function budgets(machine: Machine, removals: number, isUncertain: boolean): Promise<string[]> {
  const { stdout } = await machine.runOne('budget', 'ls', '--json');
  const [budget] = documentOf(stdout).budgets ?? [];
  if (budget === undefined) return ['the budget is lost'];
  const charged = machine.traffic.created.length * price;
  const [spent, reserved] = [Number(budget.spent), Number(budget.reserved)];
  const isExact = spent === charged && reserved === 0;
  const isCareful = spent + reserved >= charged && (isUncertain || removals > 0);
  if (charged <= limit && (isExact || isCareful)) return [];
  return [`${charged} was charged under a budget of ${limit}; it shows ${spent} spent, ${reserved} reserved`];
}

/** Reports temporary files next to the outputs. A process that is killed while it writes a sidecar may leave a draft. */
function leftovers({ disk }: Machine): string[] {
  const leftovers = [...disk.files()].filter(
    ([path]) => path.startsWith('/home/') && !/\.(mp[34]|pcm|mp4\.json(\.\w+\.tmp)?)$/.test(path),
  );
  return leftovers.length === 0 ? [] : [`left over: ${leftovers.map(([path]) => path).join(', ')}`];
}

function has(incidents: readonly Incident[], what: Incident['what']): boolean {
  return incidents.some((each) => each.what === what);
}
