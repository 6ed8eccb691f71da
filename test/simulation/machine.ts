import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { randomFor, type Random } from '../storm/random.ts';
import type { Asked, Begun, Call, Replied } from './calls.ts';
import { Disk, SystemError, type Remains } from './disk.ts';
import { Gateway, json, type Response } from './gateway.ts';
import type { NetworkEvent } from './network.ts';

/** What goes wrong with a request, counted from 1 in the order in which requests leave. */
export type NetworkFault =
  'refused' | 'lost' | 'answer lost' | 'answer late' | 'answer cut' | 'error' | 'busy';

/** Something that happens before a step of the machine, counted from 1. */
export type Incident =
  | { at: number; what: 'switch' | 'kill' | 'time passes' | 'index lost' }
  | { at: number; what: 'power cut'; remains: Remains }
  | { at: number; what: 'disk full'; room: number; steps: number }
  | { at: number; what: 'clock jump'; ms: number }
  | { request: number; what: NetworkFault };

/** How a process ended; `killed` if it was. */
export interface Ended {
  args: string[];
  code: number | 'killed';
  stdout: string;
  stderr: string;
}

/** Threads that processes run in, one at a time; they are used for any number of machines. */
export class Threads {
  readonly #free: Thread[] = [];

  constructor(
    readonly script: URL,
    readonly bundle: string,
  ) {}

  take(): Thread {
    return this.#free.pop() ?? new Thread(this.script, this.bundle);
  }

  giveBack(thread: Thread): void {
    this.#free.push(thread);
  }

  async close(): Promise<void> {
    await Promise.all(this.#free.map((thread) => thread.end()));
  }
}

/** The machine's side of a thread. */
class Thread {
  readonly #turn = new Int32Array(new SharedArrayBuffer(4));
  readonly #port: MessagePort;
  readonly #worker: Worker;

  constructor(script: URL, bundle: string) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#turn[0] = 1;
    const workerData = { port: port2, turn: this.#turn, bundle };
    this.#worker = new Worker(script, {
      workerData,
      transferList: [port2],
      resourceLimits: { maxYoungGenerationSizeMb: 128 },
    });
    this.#worker.unref();
    this.#port.unref();
    this.#next();
  }

  /** Lets the process run until it asks for something again. */
  resume(replied: Replied): Asked {
    this.#port.postMessage(replied);
    Atomics.store(this.#turn, 0, 1);
    Atomics.notify(this.#turn, 0);
    return this.#next();
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #next(): Asked {
    // A late notice of the turn before may wake it.
    while (Atomics.load(this.#turn, 0) === 1)
      if (Atomics.wait(this.#turn, 0, 1, 60_000) === 'timed-out')
        throw new Error('a process does not come to rest');
    return receiveMessageOnPort(this.#port)?.message as Asked;
  }
}

interface Request {
  number: number;
  begun: Begun;
  fault: NetworkFault | undefined;
  hasArrived: boolean;
  events: NetworkEvent[];
  /** The answer breaks off after the events. */
  breaks: boolean;
}

interface Process {
  index: number;
  pid: number;
  start: number;
  thread: Thread;
  ended: Ended;
  call: Call | undefined;
  operations: Map<number, Begun & { due: number }>;
  requests: Map<number, Request>;
}

/** One thing that can happen next. `process` is undefined for what the network does by itself. */
interface Action {
  process?: Process;
  run: () => void;
}

/** A computer with a disk, a clock and a network, on which processes run by system call; what happens next is drawn. */
export class Machine {
  readonly gateway = new Gateway();
  /** What happened, in words. */
  readonly log: string[] = [];
  steps = 0;
  #monotonic = 1000;
  #epoch = 1_795_000_000_000;
  #boots = 1;
  #started = 0;
  #requests = 0;
  #fullUntil = 0;
  #current: Process | undefined;
  readonly #processes: Process[] = [];
  readonly #flights: Request[] = [];
  /** Ids of processes that have ended and were not reaped. */
  readonly #zombies = new Set<number>();
  readonly disk = new Disk(() => this.#now());

  constructor(
    readonly threads: Threads,
    readonly seed: number,
    readonly env: Record<string, string>,
    readonly traces = false,
  ) {}

  /** Runs command lines side by side until all have ended; those that have not begun when the power is cut begin after it. */
  run(commands: readonly string[][], incidents: readonly Incident[] = []): Ended[] {
    const ends: Ended[] = [];
    const left = commands.map((args, index) => ({ args, index }));
    const planned = new Map<number, Incident[]>();
    for (const incident of incidents)
      if ('at' in incident) planned.set(incident.at, [...(planned.get(incident.at) ?? []), incident]);
    const faults = new Map(
      incidents.flatMap((each) => ('request' in each ? [[each.request, each.what]] : [])),
    );
    const first = this.steps;
    const limit = first + 60_000;
    while (left.length > 0 || this.#processes.length > 0) {
      this.steps += 1;
      this.#monotonic += 0.25;
      if (this.steps > limit) throw new Error('the processes do not end');
      if (this.steps === this.#fullUntil) this.disk.room = Infinity;
      const random = randomFor(this.seed, String(this.steps));
      const now = planned.get(this.steps - first) ?? [];
      for (const incident of now) this.#happens(incident, random);
      const begin = left.slice(0, 1).map(({ args, index }) => ({
        run: () => {
          left.shift();
          ends[index] = this.#start(args, index).ended;
        },
      }));
      this.#act(
        begin,
        faults,
        now.some(({ what }) => what === 'switch'),
        random,
      );
      for (const process of this.#processes.filter(({ ended }) => ended.code !== 'killed'))
        this.#remove(process);
    }
    return ends;
  }

  /** Runs a command by itself, without incidents. */
  runOne(...args: string[]): Ended {
    return this.run([args])[0] as Ended;
  }

  #now(): number {
    return Math.floor(this.#epoch + this.#monotonic);
  }

  // The current process goes on as long as it can, unless it is switched from.
  #act(begin: Action[], faults: Map<number, NetworkFault>, isSwitch: boolean, random: Random): void {
    const all = [
      ...this.#processes.flatMap((process) => this.#actionsOf(process, faults)),
      ...begin,
      ...this.#arrivals(),
    ];
    const own = all.filter(({ process }) => process !== undefined && process === this.#current);
    const others = all.filter((action) => !own.includes(action));
    const among = isSwitch ? (others.length > 0 ? others : own) : own.length > 0 ? own : others;
    if (among.length === 0) {
      this.#passTime();
      return;
    }
    const action = among[Math.floor(random() * among.length)] as Action;
    if (action.process !== undefined) this.#current = action.process;
    action.run();
  }

  #actionsOf(process: Process, faults: Map<number, NetworkFault>): Action[] {
    const { call, operations, requests } = process;
    if (call !== undefined) return [{ process, run: () => this.#answer(process, call) }];
    const actions: Action[] = [];
    for (const operation of operations.values()) {
      const { id, name, due } = operation;
      const request = requests.get(id);
      if (request !== undefined) {
        if (request.events.length > 0)
          actions.push({ process, run: () => this.#tell(process, id, { value: request.events.shift() }) });
        else if (request.breaks)
          actions.push({ process, run: () => this.#finish(process, id, { error: { code: 'ECONNRESET' } }) });
      } else if (name === 'request') this.#leave(process, operation, faults);
      else if (name !== 'timer' || due <= this.#monotonic)
        actions.push({ process, run: () => this.#complete(process, operation, faults) });
    }
    return actions;
  }

  // A request arrives although its process has died.
  #arrivals(): Action[] {
    return this.#flights
      .filter(({ hasArrived }) => !hasArrived)
      .map((request) => ({ run: () => this.#arrive(request) }));
  }

  #answer(process: Process, call: Call): void {
    process.call = undefined;
    this.#resume(process, this.#system(process, call));
  }

  #complete(process: Process, operation: Begun, faults: Map<number, NetworkFault>): void {
    const { id, name } = operation;
    if (name === 'timer') this.#finish(process, id, {});
    else if (name === 'connect') {
      const isRefused = faults.get(this.#requests + 1) === 'refused';
      if (isRefused) this.#requests += 1;
      this.#finish(process, id, isRefused ? { error: { code: 'ECONNREFUSED' } } : {});
    } else this.#finish(process, id, this.#system(process, operation));
  }

  #finish(process: Process, id: number, result: Partial<Replied>): void {
    process.operations.delete(id);
    this.#tell(process, id, result);
  }

  #tell(process: Process, id: number, result: Partial<Replied>): void {
    this.#resume(process, { ...result, id });
  }

  #resume(process: Process, replied: Partial<Replied>): void {
    const { begun, ended, call, exit } = process.thread.resume({
      ...{ now: this.#now(), monotonic: this.#monotonic },
      ...replied,
    });
    for (const each of begun)
      process.operations.set(each.id, {
        ...each,
        due: this.#monotonic + Math.max(1, Number(each.args[0]) || 0),
      });
    for (const id of ended) process.operations.delete(id);
    process.call = call;
    if (exit !== undefined) process.ended.code = exit;
  }

  #leave(process: Process, begun: Begun, faults: Map<number, NetworkFault>): void {
    this.#requests += 1;
    const number = this.#requests;
    const request = {
      number,
      begun,
      fault: faults.get(number),
      hasArrived: false,
      events: [],
      breaks: false,
    };
    process.requests.set(begun.id, request);
    this.#flights.push(request);
  }

  #arrive(request: Request): void {
    const { fault, begun } = request;
    const [method, path, , body] = begun.args as [string, string, object, string];
    request.hasArrived = true;
    this.#note(`request ${request.number}, ${method} ${path}${fault === undefined ? '' : `: ${fault}`}`);
    request.breaks = fault === 'lost' || fault === 'answer lost' || fault === 'answer cut';
    if (fault === 'lost') return;
    if (fault === 'busy')
      return void (request.events = eventsOf(json(429, { error: { message: 'too many requests' } })));
    const response = this.gateway.answer(method, path, body);
    if (fault === 'answer lost' || fault === 'answer late') return;
    request.events = eventsOf(fault === 'error' ? json(500, { error: { message: 'an error' } }) : response);
    if (fault === 'answer cut') {
      const [head, data] = request.events;
      const bytes = data?.kind === 'data' ? data.bytes.subarray(0, 5) : Buffer.alloc(0);
      request.events = head === undefined ? [] : [head, { kind: 'data', bytes }];
    }
  }

  #passTime(): void {
    const dues = this.#processes.flatMap(({ operations }) =>
      [...operations.values()].filter(({ name }) => name === 'timer').map(({ due }) => due),
    );
    if (dues.length === 0 && this.#processes.length > 0) throw new Error('a process waits for nothing');
    if (dues.length === 0) return;
    this.#monotonic = Math.max(this.#monotonic, Math.min(...dues));
  }

  #start(args: string[], index: number): Process {
    const thread = this.threads.take();
    // Ids are used again soon.
    let pid = 2;
    while (this.#zombies.has(pid) || this.#processes.some((process) => process.pid === pid)) pid += 1;
    this.#started += 1;
    const ended: Ended = { args, code: 'killed', stdout: '', stderr: '' };
    const requests = new Map<number, Request>();
    const process = {
      index,
      pid,
      start: this.#started,
      thread,
      ended,
      call: undefined,
      operations: new Map(),
      requests,
    };
    this.#processes.push(process);
    this.#current = process;
    this.#note(`process ${this.#started} starts: mgw ${args.join(' ')}`);
    this.#resume(process, { start: { args, env: this.env, pid, seed: this.seed * 1000 + this.#started } });
    return process;
  }

  #remove(process: Process): void {
    this.#processes.splice(this.#processes.indexOf(process), 1);
    this.#note(`process ${process.start} ends with ${process.ended.code}`);
    if (process.ended.code === 'killed') process.thread.resume({ now: 0, monotonic: 0, isDead: true });
    this.threads.giveBack(process.thread);
  }

  #kill(process: Process, random: Random): void {
    this.#remove(process);
    if (random() < 0.3) this.#zombies.add(process.pid);
    // What it was sending arrives, or not.
    for (const request of process.requests.values())
      if (!request.hasArrived && random() < 0.5) request.hasArrived = true;
  }

  #happens(incident: Incident, random: Random): void {
    if (!('at' in incident) || incident.what === 'switch') return;
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
    const path = `${this.env['MGW_STATE_DIR']}/index.log`;
    if (this.disk.files().has(path)) this.disk.unlink(path);
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

function shown(value: unknown): string {
  return value instanceof Uint8Array ? JSON.stringify(Buffer.from(value).toString()) : String(value);
}

function hasTimer(operations: ReadonlyMap<number, Begun>): boolean {
  return [...operations.values()].some(({ name }) => name === 'timer');
}

function eventsOf({ status, headers, pieces }: Response): NetworkEvent[] {
  const data = pieces.filter(({ length }) => length > 0).map((bytes) => ({ kind: 'data', bytes }) as const);
  return [{ kind: 'head', status, headers }, ...data, { kind: 'end' }];
}
