import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { compileFunction } from 'node:vm';
import type { Call, Operation, ProcessRequest, Replied, Start } from './calls.ts';
import { fileSystem } from './file-system.ts';
import { network } from './network.ts';
import { randomFor } from '../storm/random.ts';

/** The machine, as a process sees it. */
export interface System {
  /**
   * Makes a system call, and returns its result.
   * @throws an error with the system's error code
   */
  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the result of a call depends on its name
  call<T>(name: string, ...args: unknown[]): T;
  /** Starts an operation, and calls `on` for each of its events. Returns a function that cancels the operation. */
  begin(name: string, args: unknown[], on: (value: unknown, error?: Error) => void): () => void;
  /** Whether undici's connect hook does not run in this process. */
  isHookless(): boolean;
}

/**
 * mgw's real command line, which is evaluated once and serves as one process after the other. Only system calls and
 * events take simulated time.
 */
export class Program {
  /** Returns the machine's reply to a request. Set by the host. */
  answer: (request: ProcessRequest) => Replied = () => {
    throw new Error('no system');
  };
  now = 0;
  monotonic = 0;
  started: Operation[] = [];
  ended: number[] = [];
  #process: Process | undefined;
  readonly #main: (args: string[]) => Promise<number>;
  // Functions that reset the modules' state.
  readonly #resets: (() => void)[] = [];

  constructor(bundle: string) {
    process.on('unhandledRejection', () => undefined);
    const require = createRequire(bundle);
    const system: System = {
      call: (name, ...args) => this.running.call(name, ...args),
      begin: (name, args, on) => this.running.begin(name, args, on),
      isHookless: () => this.running.isHookless(),
    };
    const crypto = { ...(require('node:crypto') as object), ...seededCrypto(() => this.running.random()) };
    const modules = { ...fileSystem(system), ...network(system), 'node:crypto': crypto };
    const load = (name: string): unknown =>
      (modules as Record<string, unknown>)[name] ?? (name.startsWith('virtual:') ? {} : require(name));
    const exported = {} as { main: (args: string[]) => Promise<number> };
    const globals = Object.create(globalThis) as typeof globalThis;
    this.#resets.push(() => Reflect.deleteProperty(globals, Symbol.for('mgw.instance')));
    const parameters: Record<string, unknown> = {
      ...{ exports: exported, require: load, globalThis: globals, ...globalsFor(this, system) },
      afterEachProcess: (reset: () => void) => void this.#resets.push(reset),
    };
    const text = readFileSync(bundle, 'utf8');
    const evaluate = compileFunction(text, Object.keys(parameters), { filename: bundle }) as (
      ...all: unknown[]
    ) => void;
    evaluate(...Object.values(parameters));
    this.#main = exported.main;
  }

  get running(): Process {
    if (this.#process === undefined) throw new Error('no process runs');
    return this.#process;
  }

  /** Runs the process until it waits for its next event. */
  async resume(replied: Replied): Promise<ProcessRequest> {
    const { start, id, value, error, isDead } = this.#tellTime(replied);
    try {
      if (isDead === true) this.#process?.die();
      else if (start !== undefined) {
        for (const reset of this.#resets) reset();
        this.#process = new Process(this, start);
        this.#process.run(this.#main, start.args);
      } else if (id !== undefined) this.#process?.tell(id, value, error);
    } catch (thrown) {
      if (this.#process?.isDead !== true) throw thrown;
    }
    // Runs the program's promises, streams and immediates until it waits for an event.
    do await new Promise((resolve) => setImmediate(resolve));
    while ((this.#process?.immediates ?? 0) > 0);
    const exit = this.#process?.exit;
    const request = this.#newRequest({ exit });
    return this.#process?.isDead === true || exit !== undefined ? { started: [], ended: [], exit } : request;
  }

  ask(call: Call): Replied {
    return this.#tellTime(this.answer(this.#newRequest({ call })));
  }

  #newRequest(more: Partial<ProcessRequest>): ProcessRequest {
    const request = { started: this.started, ended: this.ended, ...more };
    [this.started, this.ended] = [[], []];
    return request;
  }

  #tellTime(replied: Replied): Replied {
    ({ now: this.now, monotonic: this.monotonic } = replied);
    return replied;
  }
}

/** One process, with the operations that it has started. */
class Process implements System {
  exit: number | undefined;
  isDead = false;
  immediates = 0;
  readonly pid: number;
  readonly env: Record<string, string>;
  readonly random: () => number;
  readonly isHookless: () => boolean;
  readonly #program: Program;
  readonly #operations = new Map<number, (value: unknown, error?: Error) => void>();
  #last = 0;

  constructor(program: Program, { pid, env, seed, isHookless }: Start) {
    [this.#program, this.pid, this.env, this.random] = [program, pid, env, randomFor(seed, 'process')];
    this.isHookless = () => isHookless;
  }

  // eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- the result of a call depends on its name
  call<T>(name: string, ...args: unknown[]): T {
    const { value, error, isDead } = this.isDead ? { isDead: true } : this.#program.ask({ name, args });
    if (isDead === true) this.die();
    if (error !== undefined) throw systemError(error.code, name, args[0]);
    return value as T;
  }

  begin(name: string, args: unknown[], on: (value: unknown, error?: Error) => void): () => void {
    if (this.isDead) return () => undefined;
    const id = (this.#last += 1);
    this.#operations.set(id, on);
    this.#program.started.push({ id, name, args });
    return () => {
      if (this.#operations.delete(id) && !this.isDead) this.#program.ended.push(id);
    };
  }

  /** Reports an operation's event to the program. */
  tell(id: number, value: unknown, error?: { code: string }): void {
    this.#operations.get(id)?.(value, error && systemError(error.code, 'call', ''));
  }

  /** Marks the process as dead and throws, so that the program's remaining code has no effect. */
  die(): never {
    this.isDead = true;
    throw new Error('the process is dead');
  }

  run(main: (args: string[]) => Promise<number>, args: string[]): void {
    main(args).then(
      (code) => (this.exit = code),
      () => (this.exit = 1),
    );
  }
}

function systemError(code: string, syscall: string, path: unknown): Error {
  return Object.assign(new Error(`${code}: ${syscall} '${String(path)}'`), { code, syscall, errno: -1 });
}

function seededCrypto(random: () => number): object {
  const randomBytes = (length: number): Buffer =>
    Buffer.from(Array.from({ length }, () => Math.floor(random() * 256)));
  const randomUUID = (): string =>
    randomBytes(16)
      .toString('hex')
      .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  return { randomBytes, randomUUID };
}

function globalsFor(program: Program, system: System): Record<string, unknown> {
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
    constructor(time: number | string = program.now) {
      super(time);
    }
    static override now = (): number => program.now;
  }
  const setTimeout = (act: () => void, ms = 0): object => {
    const clear = system.begin('timer', [ms], () => act());
    return { clear, unref: () => undefined, ref: () => undefined };
  };
  function listen(this: object): object {
    return this;
  }
  return {
    Date: VirtualDate,
    Math: Object.assign(Object.create(Math) as typeof Math, { random: () => program.running.random() }),
    setTimeout,
    clearTimeout: (timer: { clear?: () => void } | undefined) => timer?.clear?.(),
    setImmediate: (act: () => void): object => {
      const process = program.running;
      process.immediates += 1;
      return setImmediate(() => {
        process.immediates -= 1;
        act();
      });
    },
    performance: { now: () => program.monotonic },
    process: {
      get pid() {
        return program.running.pid;
      },
      get env() {
        return program.running.env;
      },
      ...{ platform: 'linux', versions: process.versions, argv: [], execPath: '/usr/bin/node' },
      ...{ stdin: stream('stdin'), stdout: stream('stdout'), stderr: stream('stderr') },
      ...{ getuid: () => 1000, geteuid: () => 1000, cwd: () => '/home' },
      nextTick: process.nextTick.bind(process),
      getBuiltinModule: () => ({ isSea: () => false }),
      hrtime: () => [Math.floor(program.monotonic / 1000), (program.monotonic % 1000) * 1e6],
      uptime: () => program.now / 1000,
      kill: (other: number) => system.call('kill', other),
      ...{ on: listen, once: listen, off: listen },
    },
  };
}
