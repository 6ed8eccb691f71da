import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { compileFunction } from 'node:vm';
import { receiveMessageOnPort, workerData, type MessagePort } from 'node:worker_threads';
import type { Asked, Begun, Replied } from './calls.ts';
import { fileSystem } from './file-system.ts';
import { network } from './network.ts';
import { randomFor } from '../storm/random.ts';

// A thread in which the real command line runs as one process after the other. It stops at each system call until the
// machine replies, as a process does; nothing else in it takes time.

/** The system as a process sees it. */
export interface System {
  /** Makes a system call. @throws an error with its code. */
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- what a call gives depends on its name
  call<T>(name: string, ...args: unknown[]): T;
  /** Begins an operation; `on` is called for each of its events. Returns what gives it up. */
  begin(name: string, args: unknown[], on: (value: unknown, error?: Error) => void): () => void;
}

const { port, turn, bundle } = workerData as {
  port: MessagePort;
  turn: Int32Array<SharedArrayBuffer>;
  bundle: string;
};
const require = createRequire(bundle);

let [now, monotonic] = [0, 0];
let begun: Begun[] = [];
let ended: number[] = [];

function ask(asked: Pick<Asked, 'call' | 'exit'>): Replied {
  port.postMessage({ ...asked, begun, ended } satisfies Asked);
  [begun, ended] = [[], []];
  Atomics.store(turn, 0, 0);
  Atomics.notify(turn, 0);
  while (Atomics.load(turn, 0) === 0) Atomics.wait(turn, 0, 0);
  const replied = receiveMessageOnPort(port)?.message as Replied;
  ({ now, monotonic } = replied);
  return replied;
}

/** One process: what it has begun, and whether it is still alive. */
class Process implements System {
  exit: number | undefined;
  isDead = false;
  immediates = 0;
  readonly #operations = new Map<number, (value: unknown, error?: Error) => void>();
  #last = 0;

  constructor(
    readonly pid: number,
    readonly env: Record<string, string>,
    readonly random: () => number,
  ) {}

  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- what a call gives depends on its name
  call<T>(name: string, ...args: unknown[]): T {
    const { value, error, isDead } = this.isDead ? { isDead: true } : ask({ call: { name, args } });
    if (isDead === true) this.die();
    if (error !== undefined) throw systemError(error.code, name, args[0]);
    return value as T;
  }

  begin(name: string, args: unknown[], on: (value: unknown, error?: Error) => void): () => void {
    if (this.isDead) return () => undefined;
    const id = (this.#last += 1);
    this.#operations.set(id, on);
    begun.push({ id, name, args });
    return () => {
      if (this.#operations.delete(id) && !this.isDead) ended.push(id);
    };
  }

  /** Tells of an event. */
  tell(id: number, value: unknown, error?: { code: string }): void {
    this.#operations.get(id)?.(value, error && systemError(error.code, 'call', ''));
  }

  /** The rest of the program runs on into errors, and does nothing more. */
  die(): never {
    this.isDead = true;
    throw new Error('the process is dead');
  }

  run(args: string[]): void {
    main(args).then(
      (code) => (this.exit = code),
      () => (this.exit = 1),
    );
  }
}

function systemError(code: string, syscall: string, path: unknown): Error {
  return Object.assign(new Error(`${code}: ${syscall} '${String(path)}'`), { code, syscall, errno: -1 });
}

/** Evaluates the program once, for all processes of this thread; `resets` undoes what a process left in its modules. */
function loadProgram(): { main: (args: string[]) => Promise<number>; resets: (() => void)[] } {
  const system: System = {
    call: (name, ...args) => running().call(name, ...args),
    begin: (name, args, on) => running().begin(name, args, on),
  };
  const modules: Record<string, unknown> = {
    ...{ ...fileSystem(system), ...network(system), 'node:crypto': seededCrypto() },
  };
  const exported = {} as { main: (args: string[]) => Promise<number> };
  const resets: (() => void)[] = [];
  const given: Record<string, unknown> = {
    exports: exported,
    require: (name: string) => modules[name] ?? (name.startsWith('virtual:') ? {} : require(name)),
    afterEachProcess: (reset: () => void) => void resets.push(reset),
    Math: Object.assign(Object.create(Math) as typeof Math, { random: () => running().random() }),
    ...globalsFor(system),
  };
  const text = readFileSync(bundle, 'utf8');
  const program = compileFunction(text, Object.keys(given), { filename: bundle }) as (...all: unknown[]) => void;
  program(...Object.values(given));
  return { main: exported.main, resets };
}

function running(): Process {
  if (current === undefined) throw new Error('no process runs');
  return current;
}

function seededCrypto(): object {
  const randomBytes = (length: number): Buffer =>
    Buffer.from(Array.from({ length }, () => Math.floor(running().random() * 256)));
  const randomUUID = (): string =>
    randomBytes(16)
      .toString('hex')
      .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  return { ...(require('node:crypto') as object), randomBytes, randomUUID };
}

function globalsFor(system: System): Record<string, unknown> {
  const print =
    (name: string) =>
    (text: string | Uint8Array, done?: (error?: Error) => void): boolean => {
      try {
        system.call('print', name, Buffer.from(text).toString());
        done?.();
      } catch (error) {
        done?.(error as Error);
      }
      return true;
    };
  const stream = (name: string): object => ({
    write: print(name),
    on: () => undefined,
    once: () => undefined,
  });
  class VirtualDate extends Date {
    constructor(time: number | string = now) {
      super(time);
    }
    static override now = (): number => now;
  }
  const setTimeout = (act: () => void, ms = 0): object => {
    const clear = system.begin('timer', [ms], () => act());
    return { clear, unref: () => undefined, ref: () => undefined };
  };
  const listens = {
    on(): object {
      return this;
    },
  };
  return {
    Date: VirtualDate,
    setTimeout,
    clearTimeout: (timer: { clear?: () => void } | undefined) => timer?.clear?.(),
    setImmediate: (act: () => void): object => {
      const process = running();
      process.immediates += 1;
      return setImmediate(() => {
        process.immediates -= 1;
        act();
      });
    },
    performance: { now: () => monotonic, timeOrigin: 0 },
    process: {
      get pid() {
        return running().pid;
      },
      get env() {
        return running().env;
      },
      ...{ platform: 'linux', versions: process.versions, argv: [], execPath: '/usr/bin/node' },
      ...{ stdin: stream('stdin'), stdout: stream('stdout'), stderr: stream('stderr') },
      ...{ getuid: () => 1000, geteuid: () => 1000, cwd: () => '/home' },
      nextTick: process.nextTick.bind(process),
      getBuiltinModule: () => ({ isSea: () => false }),
      hrtime: () => [Math.floor(monotonic / 1000), (monotonic % 1000) * 1e6],
      kill: (other: number) => system.call('kill', other),
      ...{ on: listens.on, once: listens.on, off: listens.on },
    },
  };
}

// Promises, streams and immediates of the program run on until it waits for an event.
async function settle(process: Process | undefined): Promise<void> {
  do await new Promise((resolve) => setImmediate(resolve));
  while ((process?.immediates ?? 0) > 0);
}

process.on('unhandledRejection', () => undefined);
let current: Process | undefined;
const { main, resets } = loadProgram();
for (;;) {
  const { start, id, value, error, isDead } = ask({ exit: current?.exit });
  try {
    if (isDead === true) current?.die();
    else if (start !== undefined) {
      for (const reset of resets) reset();
      current = new Process(start.pid, start.env, randomFor(start.seed, 'process'));
      current.run(start.args);
    } else if (id !== undefined) current?.tell(id, value, error);
  } catch (thrown) {
    if (current?.isDead !== true) throw thrown;
  }
  await settle(current);
  if (current?.isDead === true || current?.exit !== undefined) [begun, ended] = [[], []];
}
