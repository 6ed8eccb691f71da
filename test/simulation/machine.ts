import { randomFor, type Random } from '../storm/random.ts';
import type { Call, Operation, ProcessRequest, Replied } from './calls.ts';
import { Disk, SystemError, type Remains } from './disk.ts';
import type { Host, Threads } from './threads.ts';
import { Traffic, type NetworkFault, type Request } from './traffic.ts';

/**
 * A moment before a step of the machine (`at`), or immediately after a name or the gateway has changed (`after`). Both
 * are counted from 1.
 */
export type Moment = { at: number } | { after: number };

/**
 * A moment before a process's system call, given by the call's name and parts of its arguments, such as `link
 * /home/boat.mp4`. Refers to the first matching call after the schedule's
 * previous incident of this kind.
 */
export type BeforeCall = { process: number; before: string };

/**
 * An incident at a moment, or for a request, a process or a command. Requests, processes and
 * commands are counted from 1.
 */
export type Incident =
  | ((Moment | BeforeCall) & Happening)
  | { request: number; what: NetworkFault }
  | { process: number; what: 'hook hidden' }
  | { command: number; what: 'starts last' | 'starts in a wait' };

// `next starts` starts the next command. While this incident is pending, a command starts only if no other is running.
type Happening =
  | { what: 'switch' | 'next starts' | 'kill' | 'time passes' | 'index lost' }
  | { what: 'power cut'; remains: Remains }
  | { what: 'disk full'; room: number; steps: number }
  | { what: 'clock jump'; ms: number };

/** The minimum length of a long wait, in ms. Processes that wait for a lock or a claim look more often. */
const longWaitMs = 1000;

/** The delay of a slow response, in ms: longer than the pause between two polls, and shorter than a timeout. */
const slowMs = 8000;

const changes = new Set(['link', 'rename', 'unlink']);

/** A process that has ended, with its exit code and its output. */
export interface Ended {
  args: string[];
  code: number | 'killed';
  stdout: string;
  stderr: string;
  /** The run time, in ms by the machine's clock. */
  ms: number;
}

interface Process {
  index: number;
  pid: number;
  start: number;
  host: Host;
  ended: Ended;
  call: Call | undefined;
  operations: Map<number, Operation & { due: number }>;
  requests: Map<number, Request>;
}

/** A possible next step. `process` is undefined for a network step. `isInWait`: possible only during a long wait. */
interface Action {
  process?: Process;
  isInWait?: boolean;
  run: () => void | Promise<void>;
}

/**
 * A computer with a disk, a clock and a network, whose processes run one system call at a time. The
 * next step is drawn at random.
 */
export class Machine {
  readonly traffic = new Traffic((line) => this.#note(line));
  /** The numbers of the processes in which undici's connect hook does not run. */
  #hookless = new Set<number>();
  /** A log of all steps and incidents. */
  readonly log: string[] = [];
  steps = 0;
  #monotonic = 1000;
  #epoch = 1_795_000_000_000;
  #boots = 1;
  #started = 0;
  #lastStep = 0;
  #changes = 0;
  /** The number of processes that started before this run. */
  #earlier = 0;
  /** The incidents that happen before a call. Those in `#awaited` wait for their call; those in `#due` happen now. */
  #awaited: (BeforeCall & Happening)[] = [];
  #due: Happening[] = [];
  #fullUntil = 0;
  #current: Process | undefined;
  readonly #processes: Process[] = [];
  /** The ids of processes that have ended but have not been reaped. */
  readonly #zombies = new Set<number>();
  readonly disk = new Disk(() => this.#now());

  constructor(
    readonly threads: Threads,
    readonly seed: number,
    readonly env: Record<string, string>,
    readonly traces = false,
  ) {}

  /**
   * Runs command lines concurrently until all have ended. A power cut kills all processes; the commands that have not
   * started start afterwards.
   */
  async run(commands: readonly string[][], incidents: readonly Incident[] = []): Promise<Ended[]> {
    const ends: Ended[] = [];
    const remaining = commands.map((args, index) => ({ args, index }));
    const planned = incidents.filter((each) => 'at' in each || 'after' in each);
    this.#earlier = this.#started;
    this.#awaited = incidents.flatMap((each) => ('before' in each ? [each] : []));
    this.#hookless = new Set(
      incidents.flatMap((each) => (each.what === 'hook hidden' ? [this.#earlier + each.process] : [])),
    );
    this.traffic.faults = new Map(
      incidents.flatMap((each) => ('request' in each ? [[each.request, each.what]] : [])),
    );
    const starts = new Map(
      incidents.flatMap((each) => ('command' in each ? [[each.command, each.what] as const] : [])),
    );
    const isAlone = commands.length === 1 && incidents.length === 0;
    const first = this.steps;
    let seen = (this.#changes = 0);
    this.#lastStep = first + 60_000;
    while (remaining.length > 0 || this.#processes.length > 0) {
      this.#step();
      const random = randomFor(this.seed, String(this.steps));
      const isNow = (moment: Moment): boolean =>
        'at' in moment
          ? moment.at === this.steps - first
          : moment.after > seen && moment.after <= this.#changes;
      const now: Happening[] = [...this.#due.splice(0), ...planned.filter(isNow)];
      seen = this.#changes;
      for (const incident of now) this.#happens(incident, random);
      const isStart = now.some(isNextStarts);
      const isBusy = this.#processes.length > 0 && !isStart;
      const next = starts.get((remaining[0]?.index ?? 0) + 1);
      const isLater = isBusy && (next === 'starts last' || this.#awaited.some(isNextStarts));
      const begin = remaining.slice(0, isLater ? 0 : 1).map(({ args, index }) => ({
        isInWait: isBusy && next === 'starts in a wait',
        run: async () => {
          remaining.shift();
          ends[index] = (await this.#start(args, index, isAlone)).ended;
        },
      }));
      const isSwitch = now.some(({ what }) => what === 'switch');
      await (isStart ? begin[0]?.run() : this.#act(begin, isSwitch, random));
      for (const process of this.#processes.filter(({ ended }) => ended.code !== 'killed'))
        this.#remove(process);
    }
    return ends;
  }

  /** Runs a command alone, without incidents. */
  async runOne(...args: string[]): Promise<Ended> {
    return (await this.run([args]))[0] as Ended;
  }

  /** Describes the incidents of this run whose call was never made. */
  get missed(): string[] {
    return this.#awaited.map(({ process, before }) => `process ${process} did not make the call: ${before}`);
  }

  #isAwaited({ start }: Process, { name, args }: Call): boolean {
    const [next] = this.#awaited;
    if (next === undefined || start !== this.#earlier + next.process) return false;
    const [call, ...parts] = next.before.split(' ');
    const text = args.map((arg) => String(arg instanceof Uint8Array ? Buffer.from(arg) : arg)).join(' ');
    return call === name && parts.every((part) => text.includes(part));
  }

  #now(): number {
    return Math.floor(this.#epoch + this.#monotonic);
  }

  #step(): void {
    this.steps += 1;
    this.#monotonic += 0.25;
    if (this.steps > this.#lastStep) throw new Error('the processes do not end');
    if (this.steps === this.#fullUntil) this.disk.room = Infinity;
  }

  // Makes one step. Unless `isSwitch` is true, the current process continues if it can.
  async #act(begin: Action[], isSwitch: boolean, random: Random): Promise<void> {
    const all: Action[] = [
      ...this.#processes.flatMap((process) => this.#actionsOf(process)),
      ...begin.filter(({ isInWait }) => isInWait !== true),
      ...this.traffic.underWay().map((request) => ({ run: () => this.#arrive(request) })),
    ];
    const own = all.filter(({ process }) => process !== undefined && process === this.#current);
    const others = all.filter((action) => !own.includes(action));
    const among = isSwitch ? (others.length > 0 ? others : own) : own.length > 0 ? own : others;
    if (among.length === 0) {
      const isWaiting = Math.min(...this.#dues()) - this.#monotonic >= longWaitMs;
      if (isWaiting && begin[0] !== undefined) await begin[0].run();
      else this.#passTime();
      return;
    }
    const action = among[Math.floor(random() * among.length)] as Action;
    if (action.process !== undefined) this.#current = action.process;
    await action.run();
  }

  #actionsOf(process: Process): Action[] {
    const { call, operations, requests } = process;
    if (call !== undefined) return [{ process, run: () => this.#answer(process, call) }];
    const actions: Action[] = [];
    for (const operation of operations.values()) {
      const { id, name, due } = operation;
      const request = requests.get(id);
      if (request !== undefined) {
        if (request.due > this.#monotonic) continue;
        if (request.events.length > 0)
          actions.push({ process, run: () => this.#tell(process, id, { value: request.events.shift() }) });
        else if (request.breaks)
          actions.push({ process, run: () => this.#finish(process, id, { error: { code: 'ECONNRESET' } }) });
      } else if (name === 'request') requests.set(id, this.traffic.leave(operation));
      else if (name !== 'timer' || due <= this.#monotonic)
        actions.push({ process, run: () => this.#complete(process, operation) });
    }
    return actions;
  }

  #arrive(request: Request): void {
    this.traffic.arrive(request);
    if (request.fault === 'answer slow') request.due = this.#monotonic + slowMs;
    this.#changes += 1;
  }

  #answer(process: Process, call: Call): Promise<void> {
    process.call = undefined;
    return this.#resume(process, this.#system(process, call));
  }

  #complete(process: Process, operation: Operation): Promise<void> {
    const { id, name } = operation;
    if (name === 'timer') return this.#finish(process, id, {});
    if (name !== 'connect') return this.#finish(process, id, this.#system(process, operation));
    return this.#finish(process, id, this.traffic.refuses() ? { error: { code: 'ECONNREFUSED' } } : {});
  }

  #finish(process: Process, id: number, result: Partial<Replied>): Promise<void> {
    process.operations.delete(id);
    return this.#tell(process, id, result);
  }

  #tell(process: Process, id: number, result: Partial<Replied>): Promise<void> {
    return this.#resume(process, { ...result, id });
  }

  async #resume(process: Process, replied: Partial<Replied>): Promise<void> {
    const request = await process.host.resume({ ...this.#time(), ...replied });
    this.#handle(process, request);
    process.call = request.call;
    if (request.exit !== undefined) process.ended.code = request.exit;
  }

  #time(): { now: number; monotonic: number } {
    return { now: this.#now(), monotonic: this.#monotonic };
  }

  #handle(process: Process, { started, call, ended }: ProcessRequest): void {
    const { operations } = process;
    for (const each of started)
      operations.set(each.id, { ...each, due: this.#monotonic + Math.max(1, Number(each.args[0]) || 0) });
    for (const id of ended) operations.delete(id);
    for (const each of call === undefined ? started : [...started, call])
      if (this.#isAwaited(process, each)) this.#due.push(...this.#awaited.splice(0, 1));
  }

  // A process that runs alone receives each reply immediately, in its own thread.
  #hostFor(process: () => Process): Host {
    return this.threads.local((request) => {
      this.#handle(process(), request);
      this.#step();
      return { ...this.#time(), ...this.#system(process(), request.call as Call) };
    });
  }

  // Returns the times of the next timers and slow responses.
  #dues(): number[] {
    return this.#processes.flatMap(({ operations, requests }) => [
      ...[...operations.values()].filter(({ name }) => name === 'timer').map(({ due }) => due),
      ...[...requests.values()].map(({ due }) => due).filter((due) => due > this.#monotonic),
    ]);
  }

  #passTime(): void {
    const dues = this.#dues();
    if (dues.length === 0 && this.#processes.length > 0) throw new Error('a process waits for nothing');
    if (dues.length === 0) return;
    this.#monotonic = Math.max(this.#monotonic, Math.min(...dues));
  }

  async #start(args: string[], index: number, isAlone: boolean): Promise<Process> {
    // Uses the lowest free id, so that ids are soon reused.
    let pid = 2;
    while (this.#zombies.has(pid) || this.#processes.some((process) => process.pid === pid)) pid += 1;
    this.#started += 1;
    const process: Process = {
      ...{ index, pid, start: this.#started },
      host: isAlone ? this.#hostFor(() => process) : this.threads.take(),
      ended: { args, code: 'killed', stdout: '', stderr: '', ms: -this.#monotonic },
      call: undefined,
      operations: new Map(),
      requests: new Map(),
    };
    this.#processes.push(process);
    this.#current = process;
    this.#note(`process ${this.#started} starts: mgw ${args.join(' ')}`);
    const seed = this.seed * 1000 + this.#started;
    const isHookless = this.#hookless.has(this.#started);
    await this.#resume(process, { start: { args, env: this.env, pid, seed, isHookless } });
    return process;
  }

  #remove(process: Process): void {
    this.#processes.splice(this.#processes.indexOf(process), 1);
    process.ended.ms += this.#monotonic;
    this.#note(`process ${process.start} ends with ${process.ended.code}`);
    if (process.ended.code === 'killed') void process.host.resume({ now: 0, monotonic: 0, isDead: true });
    this.threads.giveBack(process.host);
  }

  #kill(process: Process, random: Random): void {
    this.#remove(process);
    if (random() < 0.3) this.#zombies.add(process.pid);
    // Bytes that the dead process was sending may or may not arrive.
    for (const request of process.requests.values())
      if (!request.hasArrived && random() < 0.5) request.hasArrived = true;
  }

  #happens(incident: Happening, random: Random): void {
    if (incident.what === 'switch' || isNextStarts(incident)) return;
    if (incident.what !== 'time passes') this.#note(JSON.stringify(incident));
    if (incident.what === 'kill' && this.#current && this.#processes.includes(this.#current))
      this.#kill(this.#current, random);
    else if (incident.what === 'power cut') this.#cutPower(incident.remains, random);
    else if (incident.what === 'clock jump') this.#epoch += incident.ms;
    else if (
      incident.what === 'time passes' &&
      this.#processes.some(({ operations }) => hasTimer(operations))
    )
      this.#passTime();
    else if (incident.what === 'index lost') this.#loseIndex();
    else if (incident.what === 'disk full') {
      this.disk.room = incident.room;
      this.#fullUntil = this.steps + incident.steps;
    }
  }

  #cutPower(remains: Remains, random: Random): void {
    for (const process of [...this.#processes]) this.#kill(process, random);
    this.#zombies.clear();
    this.#boots += 1;
    this.disk.cut(remains, random);
  }

  #loseIndex(): void {
    for (const name of ['index.log', 'handles.log']) {
      const path = `${this.env['MGW_STATE_DIR']}/${name}`;
      if (this.disk.files().has(path)) this.disk.unlink(path);
    }
  }

  #note(text: string): void {
    this.log.push(`${this.steps}: ${text}`);
  }

  #system(process: Process, { name, args }: Call): Partial<Replied> {
    if (this.traces) this.#note(`${process.start}: ${name} ${args.map(shown).join(' ')}`);
    try {
      return { value: this.#call(process, name, args) };
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return { error: { code: error.code } };
    }
  }

  #call(process: Process, name: string, args: unknown[]): unknown {
    if (changes.has(name)) this.#changes += 1;
    if (name === 'print') return void (process.ended[args[0] as 'stdout' | 'stderr'] += String(args[1]));
    if (name === 'kill') {
      this.#exists(Number(args[0]));
      return;
    }
    if (name === 'readlink') return 'pid:[1]';
    if (name === 'open' && String(args[0]).startsWith('/proc/'))
      return this.disk.openText(this.#proc(String(args[0])));
    const { disk } = this as unknown as { disk: Record<string, (...args: unknown[]) => unknown> };
    if (disk[name] === undefined) throw new Error(`there is no system call ${name}`);
    return disk[name](...args);
  }

  #exists(pid: number): void {
    if (!this.#zombies.has(pid) && !this.#processes.some((process) => process.pid === pid))
      throw new SystemError('ESRCH');
  }

  #proc(path: string): string {
    if (path.endsWith('boot_id')) return `boot-${this.#boots}`;
    const pid = Number(/^\/proc\/(\d+)\/stat$/.exec(path)?.[1]);
    this.#exists(pid);
    const process = this.#processes.find((each) => each.pid === pid);
    return `${pid} (node) ${process === undefined ? 'Z' : 'S'}${' 0'.repeat(18)} ${process?.start ?? 0} 0`;
  }
}

function isNextStarts({ what }: Happening): boolean {
  return what === 'next starts';
}

function shown(value: unknown): string {
  return value instanceof Uint8Array ? JSON.stringify(Buffer.from(value).toString()) : String(value);
}

function hasTimer(operations: ReadonlyMap<number, Operation>): boolean {
  return [...operations.values()].some(({ name }) => name === 'timer');
}
