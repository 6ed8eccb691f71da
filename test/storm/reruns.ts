import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { FaultGateway } from '../faults/gateway.ts';
import { newUser, type CliJson, type CliResult, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';
import type { Created } from './recording.ts';
import type { Scenario } from './scenarios.ts';
import { listing, restore, type Contents, type Tree } from './tree.ts';

/** The environment in which a scenario runs. */
export interface Stage {
  user: User;
  gateway: FaultGateway;
  /** The scenario's output path. */
  out: string;
}

/** The result of a sweep over one scenario. */
export interface Swept {
  /** The number of possible moments for a power cut, or of failed disk operations. */
  moments: number;
  /** The number of different disk states, each with its own reruns. */
  disks: number;
  /** The violations, by moment and operation. */
  violations: string[];
}

/** Creates a stage for a scenario, calls `play`, and removes the stage. */
export async function onStage<T>(scenario: Scenario, play: (stage: Stage) => Promise<T>): Promise<T> {
  const gateway = await FaultGateway.start({ protocol: scenario.protocol });
  gateway.polls = 0;
  scenario.setUp?.(gateway);
  const user = newUser(gateway.url);
  // The state folder has new parent folders, whose names must be synced too.
  user.env['MGW_STATE_DIR'] = join(user.cwd, 'some', 'where', 'state');
  mkdirSync(join(user.cwd, 'out'));
  const out = join(user.cwd, 'out', `boat.${gateway.dialect.extension}`);
  try {
    return await play({ user, gateway, out });
  } finally {
    await gateway.close();
    rmSync(user.cwd, { recursive: true, force: true });
  }
}

/** The start of a run: its command line, and the tasks that existed before it. */
export interface Played {
  args: string[];
  before: readonly Created[];
}

/** Prepares the run of a scenario that will be interrupted. */
export async function prepared(scenario: Scenario, stage: Stage): Promise<Played> {
  const { gateway, out } = stage;
  const args = (await scenario.prepare?.(stage)) ?? scenario.command(out);
  return { args, before: gateway.created.map((handle) => ({ handle, body: bodyOfLast(gateway) })) };
}

/** Calls `onTask` for each task that the gateway creates, until the returned function is called. */
export function onCreated(gateway: FaultGateway, onTask: (created: Created) => void): () => void {
  const create = gateway.create.bind(gateway);
  gateway.create = (...named) => {
    const handle = create(...named);
    onTask({ handle, body: bodyOfLast(gateway) });
    return handle;
  };
  return () => (gateway.create = create);
}

function bodyOfLast(gateway: FaultGateway): string {
  return gateway.submissions.at(-1)?.body ?? '';
}

/** The disk state after an interrupted run. */
export interface Found {
  /** A description of the moment of the interruption. */
  where: string;
  tree: Tree;
  /** The tasks that the gateway had created when the run was interrupted, except tasks from before the run. */
  created: readonly Created[];
  /** The run's output. */
  printed: string;
  /** The run's message about a task that it could not record. */
  said?: string;
}

/** The ledger's content, read independently of mgw's code. */
interface Ledger {
  text: string;
  /** Whether a request may have been sent, because an attempt was claimed or recorded. */
  mayHaveSent: boolean;
  hasHandle: boolean;
  hasReply: boolean;
  hasEnded: boolean;
  isDelivered: boolean;
}

/** Performs reruns on the disk states that a run may leave. */
export class Reruns {
  disks = 0;
  readonly violations: string[] = [];
  readonly #scenario: Scenario;
  readonly #stage: Stage;
  readonly #played: Played;
  readonly #contents: Contents;
  readonly #found = new Set<string>();

  constructor(scenario: Scenario, stage: Stage, played: Played, contents: Contents) {
    this.#scenario = scenario;
    this.#stage = stage;
    this.#played = played;
    this.#contents = contents;
  }

  /** Restores a disk state that has not been tried, and repeats the command on it until the command ends. */
  async on({ where, tree, created, printed, said = '' }: Found): Promise<void> {
    const { user, gateway } = this.#stage;
    const key = JSON.stringify([listing(tree), created.length, printed]);
    if (this.#found.has(key)) return;
    this.#found.add(key);
    this.disks += 1;
    restore(tree, this.#contents, user.cwd);
    const all = [...this.#played.before, ...created];
    gateway.created.splice(0, Infinity, ...all.map(({ handle }) => handle));
    gateway.seen.length = 0;
    for (const broken of await this.#judge(all, printed, said))
      this.violations.push(`${this.#scenario.name}, ${where}: ${broken}`);
  }

  /** Returns every promise that was broken before or after the reruns. */
  async #judge(created: readonly Created[], printed: string, said: string): Promise<string[]> {
    const { saves, isKeyed } = this.#scenario;
    const found = this.#ledger(created, printed);
    const broken = this.#wrongOutput(found.isDelivered && saves, 'before any rerun');
    const [id] = /job_\w+/.exec(printed) ?? [];
    if (id !== undefined && !found.text.includes(id)) broken.push(`${id} was printed, and is not on record`);
    if (created.length > 0 && !found.mayHaveSent) broken.push('a task was created that is not on record');
    // Running a command again after it succeeded makes a second take.
    if (found.isDelivered && !saves && !isKeyed) return broken;
    const codes = this.#codesFor(found);
    // mgw does not recognize a piece or output that could not be recorded, and does not change it.
    if (this.#scenario.protocol === 'tts' && said !== '') codes.push(10);
    const { code, stderr } = await this.#untilEnded();
    if (code === 7 && (await this.#untilEnded()).code !== 7) broken.push('the doubt ended by itself');
    if (!codes.includes(code))
      broken.push(`the rerun ended with ${code}, not with ${codes.join(' or ')}: ${stderr}`);
    if (/^\s+at .*[:(]/m.test(stderr)) broken.push(`a stack trace: ${stderr}`);
    broken.push(...this.#wrongOutput(code === 0 && saves, 'after the rerun'));
    const sent = this.#stage.gateway.submissions.map(({ body }) => body);
    broken.push(
      ...repeated([...created.map(({ body }) => body), ...sent]).map((body) => `paid for twice: ${body}`),
    );
    return [...broken, ...(await this.#lostHandles(said))];
  }

  #codesFor(found: Ledger): number[] {
    if (found.isDelivered) return this.#scenario.isKeyed ? [0] : [0, 10];
    // If the pieces were joined and published before the cut, the rerun finds the output.
    if (!found.mayHaveSent || (this.#scenario.pieces !== undefined && existsSync(this.#stage.out)))
      return [0];
    if (this.#scenario.protocol !== 'tts') return found.hasHandle ? [0] : [0, 7];
    // A stream that broke off cannot be resumed, but the result of a complete stream exists.
    if (this.#scenario.pieces === undefined && found.hasEnded) return [0];
    return found.hasReply ? [0, 9, ...(this.#scenario.pieces === undefined ? [] : [7])] : [0, 7];
  }

  /** Runs the command as often as a script would. */
  async #untilEnded(): Promise<CliResult> {
    const { command, prepare } = this.#scenario;
    const { user, out } = this.#stage;
    // After the adoption, the command that submitted the task fetches its result.
    if (prepare !== undefined) await runHere(this.#played.args, user.env);
    const args = prepare === undefined ? this.#played.args : command(out);
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
    // Each piece is delivered separately, so the output counts as delivered only if the run reported it.
    const isDelivered = this.#scenario.pieces === undefined ? has('delivered') : printed !== '';
    const hasHandle = created.some(
      ({ handle }) => text.includes(`"${handle}"`) || text.includes(`\\"${handle}\\"`),
    );
    return {
      text,
      mayHaveSent,
      hasHandle,
      hasReply: has('reply'),
      // The pattern does not match a torn line.
      hasEnded: /"type":"finished".*"state":"succeeded".*\}$/m.test(text),
      isDelivered,
    };
  }

  #wrongOutput(isWanted: boolean, when: string): string[] {
    const { out, gateway } = this.#stage;
    if (!existsSync(out)) return isWanted ? [`${when} there is no output`] : [];
    const [bytes, { pieces = 1 }] = [readFileSync(out), this.#scenario];
    const whole = Buffer.concat(Array.from({ length: pieces }, () => gateway.served.content));
    return whole.equals(bytes) ? [] : [`${when} the output has ${bytes.length} other bytes`];
  }

  async #lostHandles(said: string): Promise<string[]> {
    const { user, gateway } = this.#stage;
    const listed = await runHere(['jobs', 'ls', '--all', '--json'], user.env);
    if (listed.code !== 0) return [`the ledger does not load: ${listed.stderr}`];
    const jobs = (listed.json as unknown as { jobs: CliJson['job'][] }).jobs;
    const isKnown = (handle: string): boolean =>
      said.includes(handle) || jobs.some((job) => job.handle === handle);
    const missing = gateway.created.filter((handle) => !isKnown(handle));
    const doubts = jobs.filter(({ state }) => state === 'unknown').length;
    return missing.length > doubts ? [`lost: ${missing.join(' ')}`] : [];
  }
}

function namesIn(folder: string): string[] {
  return lstatSync(folder, { throwIfNoEntry: false })?.isDirectory() ? readdirSync(folder) : [];
}

// Returns a file's complete lines. A torn line contains no information.
function wholeLines(path: string): string[] {
  return readFileSync(path, 'utf8').split('\n').slice(0, -1);
}

function repeated(texts: readonly string[]): string[] {
  return [...new Set(texts.filter((text, index) => texts.indexOf(text) !== index))];
}
