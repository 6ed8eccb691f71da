import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import type { ProcessRequest, Replied } from './calls.ts';
import { Program } from './program.ts';

/** A host that runs one process. */
export interface Host {
  /** Runs the process until its next request. */
  resume(replied: Replied): ProcessRequest | Promise<ProcessRequest>;
}

/** A pool of threads, each of which runs one process at a time. Any number of machines can share the pool. */
export class Threads {
  readonly #free: Thread[] = [];
  #local: Program | undefined;

  constructor(
    readonly script: URL,
    readonly bundle: string,
  ) {}

  take(): Host {
    return this.#free.pop() ?? new Thread(this.script, this.bundle);
  }

  giveBack(host: Host): void {
    if (host instanceof Thread) this.#free.push(host);
  }

  /**
   * Returns a host in this thread for a process that runs alone. `answer` replies to the process's
   * system calls immediately.
   */
  local(answer: (request: ProcessRequest) => Replied): Host {
    this.#local ??= new Program(this.bundle);
    this.#local.answer = answer;
    return this.#local;
  }

  async close(): Promise<void> {
    await Promise.all(this.#free.map((thread) => thread.end()));
  }
}

/** A thread, as the machine uses it. */
class Thread implements Host {
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

  resume(replied: Replied): ProcessRequest {
    this.#port.postMessage(replied);
    Atomics.store(this.#turn, 0, 1);
    Atomics.notify(this.#turn, 0);
    return this.#next();
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #next(): ProcessRequest {
    // A late notification from the previous turn may wake this wait, so the loop checks the value again.
    while (Atomics.load(this.#turn, 0) === 1)
      if (Atomics.wait(this.#turn, 0, 1, 60_000) === 'timed-out')
        throw new Error('a process never becomes idle');
    return receiveMessageOnPort(this.#port)?.message as ProcessRequest;
  }
}
