import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { FaultGateway, reply, type Answer } from '../faults/gateway.ts';
import { newUser, type CliJson, type CliResult, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';
import type { Scenario } from './power-cut-scenarios.ts';
import {
  readRecording,
  recordTo,
  type Created,
  type Entry,
  type Moment,
  type Recording,
} from './recording.ts';
import { listing, restore, treeOf } from './tree.ts';
import { remains, type Remains } from './unsynced.ts';

/** What a scenario is played on. */
export interface Stage {
  user: User;
  gateway: FaultGateway;
  /** Where the scenario's file is saved. */
  out: string;
}

/** What a sweep of a scenario came to. */
export interface Swept {
  /** How many moments the recording has. */
  moments: number;
  /** How many disks were found that differ from each other; each had its reruns. */
  disks: number;
  /** What broke, by moment and operation. */
  violations: string[];
}

/** Which of the disks are tried; all of them where absent. */
export interface Part {
  whatRemains?: readonly Remains[];
  /** One moment of so many, counted from `from`. */
  every?: number;
  from?: number;
}

/**
 * Records a run of a scenario, and for every moment of it finds the disk as a power cut may leave it: then the same
 * command is run on that disk, against the gateway as it was, until it ends. `recorder` is the address of the preload.
 */
export async function sweepPowerCut(
  scenario: Scenario,
  recorder: string,
  { whatRemains = Object.keys(remains) as Remains[], every = 1, from = 0 }: Part = {},
): Promise<Swept> {
  const gateway = await FaultGateway.start({ protocol: scenario.protocol });
  gateway.polls = 0;
  scenario.setUp?.(gateway);
  const user = newUser(gateway.url);
  // New parents of the state folder are names that have to be synced as well.
  user.env['MGW_STATE_DIR'] = join(user.cwd, 'some', 'where', 'state');
  mkdirSync(join(user.cwd, 'out'));
  const stage = { user, gateway, out: join(user.cwd, 'out', `boat.${gateway.dialect.extension}`) };
  try {
    const recorded = await recordRun(scenario, stage, recorder);
    const sweep = new Sweep(scenario, stage, recorded);
    const tried = recorded.moments.filter((_, index) => index % every === from % every);
    for (const moment of tried) for (const what of whatRemains) await sweep.cutAt(moment, what);
    return { moments: recorded.moments.length, disks: sweep.disks, violations: sweep.violations };
  } finally {
    await gateway.close();
    rmSync(user.cwd, { recursive: true, force: true });
  }
}

interface Recorded extends Recording {
  args: string[];
  /** What the gateway had created before the recording. */
  before: readonly Created[];
}

async function recordRun(scenario: Scenario, stage: Stage, recorder: string): Promise<Recorded> {
  const { user, gateway, out } = stage;
  const { answer, ends = 0 } = scenario;
  const args = (await scenario.prepare?.(stage)) ?? scenario.command(out);
  const bodyOfLast = (): string => gateway.submissions.at(-1)?.body ?? '';
  const before = gateway.created.map((handle) => ({ handle, body: bodyOfLast() }));
  const log = `${user.cwd}.log`;
  const record = recordTo(log);
  const create = gateway.create.bind(gateway);
  gateway.create = (...named) => {
    const handle = create(...named);
    record({ kind: 'created', handle, body: bodyOfLast() });
    return handle;
  };
  const env = { NODE_OPTIONS: `--import=${recorder}`, MGW_STORM_ROOT: user.cwd, MGW_STORM_LOG: log };
  if (answer !== undefined) gateway.script.submit.push(answering(answer, record));
  const run = await user.run(args, { env });
  gateway.create = create;
  if (run.code !== ends) throw new Error(`the run without a power cut ended with ${run.code}: ${run.stderr}`);
  const recording = readRecording(log);
  rmSync(log);
  expectAllSeen(recording, user.cwd);
  return { args, before, ...recording };
}

/** An answer that says on record that nothing was created, where that is so. */
function answering(answer: Answer, record: (entry: Entry) => void): Answer {
  return (call) => {
    const { length } = call.gateway.created;
    if (typeof answer === 'function') answer(call);
    // Before the answer leaves, since the client's next step stands behind it.
    if (call.gateway.created.length === length) record({ kind: 'declined' });
    if (typeof answer !== 'function') reply(call.response, answer);
  };
}

// A file that was written by a call that the recorder does not know would be taken for one that was never written.
function expectAllSeen({ moments }: Recording, folder: string): void {
  const [last, ...others] = moments.toReversed();
  const seen = JSON.stringify(listing(last?.disk('kept') ?? {}));
  if (seen !== JSON.stringify(listing(treeOf(folder, () => undefined))))
    throw new Error('the recorder has missed something');
  const isSent = others.some(({ outstanding }) => outstanding !== undefined);
  if (!isSent && last?.created.length !== 0) throw new Error('the recorder saw no request leave');
}

/** What the ledger holds, read without the code that wrote it. */
interface Ledger {
  text: string;
  /** An attempt has been claimed or recorded: a request may have left. */
  mayHaveSent: boolean;
  hasHandle: boolean;
  hasEnded: boolean;
  isDelivered: boolean;
}

/** The disks of one recording, and the reruns on them. */
class Sweep {
  disks = 0;
  readonly violations: string[] = [];
  readonly #scenario: Scenario;
  readonly #stage: Stage;
  readonly #recorded: Recorded;
  readonly #found = new Set<string>();

  constructor(scenario: Scenario, stage: Stage, recorded: Recorded) {
    this.#scenario = scenario;
    this.#stage = stage;
    this.#recorded = recorded;
  }

  /** Cuts the power at a moment: `what` is left of what was not synced. */
  async cutAt(moment: Moment, what: Remains): Promise<void> {
    const { created, outstanding } = moment;
    await this.#find(moment, what, created);
    if (outstanding !== undefined) await this.#find(moment, what, [...created, outstanding]);
  }

  async #find(moment: Moment, what: Remains, created: readonly Created[]): Promise<void> {
    const { user, gateway } = this.#stage;
    const { before, moments, contents } = this.#recorded;
    const tree = moment.disk(what);
    const key = JSON.stringify([listing(tree), created.length, moment.printed]);
    if (this.#found.has(key)) return;
    this.#found.add(key);
    this.disks += 1;
    restore(tree, contents, user.cwd);
    const all = [...before, ...created];
    gateway.created.splice(0, Infinity, ...all.map(({ handle }) => handle));
    gateway.seen.length = 0;
    const where = `${this.#scenario.name}, moment ${moment.n} of ${moments.length}, after "${moment.after}", ${remains[what]}`;
    for (const broken of await this.#judge(all, moment.printed)) this.violations.push(`${where}: ${broken}`);
  }

  /** Everything that breaks a promise on the disk as it was found, and as reruns leave it. */
  async #judge(created: readonly Created[], printed: string): Promise<string[]> {
    const { saves, isKeyed } = this.#scenario;
    const found = this.#ledger(created, printed);
    const broken = this.#wrongOutput(found.isDelivered && saves, 'before any rerun');
    const [id] = /job_\w+/.exec(printed) ?? [];
    if (id !== undefined && !found.text.includes(id)) broken.push(`${id} was printed, and is not on record`);
    // A command that was through is typed again for a second take.
    if (found.isDelivered && !saves && !isKeyed) return broken;
    const codes = this.#codesFor(found, created.length > 0);
    const { code, stderr } = await this.#untilEnded();
    if (!codes.includes(code))
      broken.push(`the rerun ended with ${code}, not with ${codes.join(' or ')}: ${stderr}`);
    if (/^\s+at .*[:(]/m.test(stderr)) broken.push(`a stack trace: ${stderr}`);
    broken.push(...this.#wrongOutput(code === 0 && saves, 'after the rerun'));
    const sent = this.#stage.gateway.submissions.map(({ body }) => body);
    broken.push(
      ...repeated([...created.map(({ body }) => body), ...sent]).map((body) => `paid for twice: ${body}`),
    );
    return [...broken, ...(await this.#lostHandles())];
  }

  #codesFor(found: Ledger, isCreated: boolean): number[] {
    if (found.isDelivered) return this.#scenario.isKeyed ? [0] : [0, 10];
    // Pieces that were joined and published before the cut are known by what they make.
    if (!found.mayHaveSent || (this.#scenario.pieces !== undefined && existsSync(this.#stage.out)))
      return [0];
    if (this.#scenario.protocol !== 'tts') return found.hasHandle ? [0] : [0, 7];
    // A stream that broke off cannot be taken up again; one that ended is there.
    if (this.#scenario.pieces === undefined && found.hasEnded) return [0];
    return isCreated ? [0, 7, 9] : [0, 7];
  }

  /** Types the commands as often as a script would. */
  async #untilEnded(): Promise<CliResult> {
    const { command, prepare } = this.#scenario;
    const { user, out } = this.#stage;
    // What was adopted is fetched by the command that had submitted it.
    if (prepare !== undefined) await runHere(this.#recorded.args, user.env);
    const args = prepare === undefined ? this.#recorded.args : command(out);
    let run = await runHere(args, user.env);
    for (let count = 0; count < 3 && [6, 8].includes(run.code); count += 1)
      run = await runHere(args, user.env);
    return run;
  }

  #ledger(created: readonly Created[], printed: string): Ledger {
    const state = this.#stage.user.env['MGW_STATE_DIR'] ?? '';
    const [jobs, claims] = [namesIn(join(state, 'jobs')), namesIn(join(state, 'claims'))];
    const lines = jobs.flatMap((name) => [name, ...wholeLines(join(state, 'jobs', name))]);
    const text = lines.join('\n');
    const has = (type: string): boolean => text.includes(`"type":"${type}"`);
    const mayHaveSent = has('sending') || claims.some((name) => name.startsWith('send.'));
    // Of pieces each is delivered by itself; what they make is, once it is told.
    const isDelivered = this.#scenario.pieces === undefined ? has('delivered') : printed !== '';
    const hasHandle = created.some(
      ({ handle }) => text.includes(`"${handle}"`) || text.includes(`\\"${handle}\\"`),
    );
    return { text, mayHaveSent, hasHandle, hasEnded: has('finished'), isDelivered };
  }

  #wrongOutput(isWanted: boolean, when: string): string[] {
    const { out, gateway } = this.#stage;
    if (!existsSync(out)) return isWanted ? [`${when} there is no output`] : [];
    const [bytes, { pieces = 1 }] = [readFileSync(out), this.#scenario];
    const whole = Buffer.concat(Array.from({ length: pieces }, () => gateway.served.content));
    return whole.equals(bytes) ? [] : [`${when} the output has ${bytes.length} other bytes`];
  }

  async #lostHandles(): Promise<string[]> {
    const { user, gateway } = this.#stage;
    const listed = await runHere(['jobs', 'ls', '--all', '--json'], user.env);
    if (listed.code !== 0) return [`the ledger does not load: ${listed.stderr}`];
    const jobs = (listed.json as unknown as { jobs: CliJson['job'][] }).jobs;
    const missing = gateway.created.filter((handle) => !jobs.some((job) => job.handle === handle));
    const doubts = jobs.filter(({ state }) => state === 'unknown').length;
    return missing.length > doubts ? [`lost: ${missing.join(' ')}`] : [];
  }
}

function namesIn(folder: string): string[] {
  return lstatSync(folder, { throwIfNoEntry: false })?.isDirectory() ? readdirSync(folder) : [];
}

// A line that was torn tells nothing to anybody.
function wholeLines(path: string): string[] {
  return readFileSync(path, 'utf8').split('\n').slice(0, -1);
}

function repeated(texts: readonly string[]): string[] {
  return [...new Set(texts.filter((text, index) => texts.indexOf(text) !== index))];
}
