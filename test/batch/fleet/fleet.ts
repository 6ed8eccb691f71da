import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onEnd } from '../../support/clean-ups.ts';
import type { Running } from '../../support/cli.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import type { PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway, type BatchGateway, type Deed } from '../gateway.ts';
import { openDatabase } from './processes.ts';
import { Machines, read } from './machines.ts';

/** The size of a fleet's run, and how often a fault occurs. */
export interface Trial {
  rows: number;
  runners: number;
  concurrency: number;
  /**
   * The number of submissions between two faults. Of every ten faults, one kills all runners, five kill one runner, two
   * stop a runner for longer than its lease, one kills the server, and one cuts every connection.
   */
  every: number;
  /** How long an idle worker waits before it exits. */
  maxIdle?: string;
  say?: (text: string) => void;
}

/** The result of a fleet's run. */
export interface Outcome {
  /** Prompts that were charged more than once. */
  paidTwice: string[];
  /** Rows without a complete video that are still new or running, or for which mgw suggests no command. */
  astray: string[];
  /** Rows that were neither finished nor in doubt when the last runner ended. */
  left: string[];
  /** Rows in doubt. */
  unknown: number;
  done: number;
  /** The maximum number of concurrent tasks at the gateway. */
  maxAtOnce: number;
  deaths: number;
}

/** How long a runner is stopped, in ms (longer than its lease). */
const stoppedMs = 4000;

interface RowView {
  id: string;
  state: string;
  next?: string[];
}

/** Runners on separate machines that are exposed to faults. Some run `mgw worker`, the others `mgw batch run`. */
export class Fleet {
  readonly gateway: BatchGateway;
  readonly #server: PostgresServer;
  readonly #proxy: CuttingProxy;
  readonly #machines: Machines;
  readonly #trial: Trial;
  readonly #database: string;
  readonly #direct: string;
  readonly #running = new Map<number, Running>();
  #deaths = 0;
  #posts = 0;
  #isOver = false;
  #maxAtOnce = 0;
  /** Only one fault happens at a time. */
  #befalling: Promise<void> = Promise.resolve();

  private constructor(
    trial: Trial,
    server: PostgresServer,
    proxy: CuttingProxy,
    gateway: BatchGateway,
    database: string,
  ) {
    this.#trial = trial;
    this.#server = server;
    this.#proxy = proxy;
    this.gateway = gateway;
    this.#database = database;
    this.#direct = `${server.url(database)}?lease=2s`;
    this.#machines = new Machines(gateway.url, this.#direct.replace(`:${server.port}/`, `:${proxy.port}/`));
  }

  /** @param port the port of the server, or of a pool in front of the server */
  static async open(trial: Trial, server: PostgresServer, port: number): Promise<Fleet> {
    const name = await server.database();
    await openDatabase(server.url(name), true);
    const proxy = await CuttingProxy.open(port);
    const gateway = await startBatchGateway();
    onEnd(() => gateway.close());
    return new Fleet(trial, server, proxy, gateway, name);
  }

  /** Runs a batch on the fleet, and checks the result once all runners have ended. */
  async run(): Promise<Outcome> {
    const { rows, runners, concurrency } = this.#trial;
    const file = this.#machines.manifest(rows);
    this.gateway.judge = (prompt) => this.#judge(prompt);
    await read(this.#machines.machine(), 'batch', 'enqueue', file, '--concurrency', String(concurrency));
    await Promise.all(Array.from({ length: runners }, (_, n) => this.#keepRunning(n, file)));
    this.#isOver = true;
    await this.#befalling;
    return this.#outcome(file);
  }

  // Restarts a killed runner under another machine name until a runner exits by itself.
  async #keepRunning(number: number, file: string): Promise<void> {
    const { concurrency, maxIdle = '4s' } = this.#trial;
    const polls = ['--poll-interval', '50ms', ...this.#machines.output];
    const args =
      number % 2 === 0
        ? ['worker', ...polls, '--max-idle', maxIdle, '--concurrency', '4']
        : ['batch', 'run', file, ...polls, '--concurrency', String(concurrency)];
    for (let isAgain = true; isAgain;) {
      const running = this.#machines.machine().start(args);
      this.#running.set(number, running);
      const { code, stderr } = await running.result;
      this.#running.delete(number);
      // Exit 6: nothing was sent, for example because the database was down. Exit 11: some rows were sent.
      const isCutOff = /for longer than its lease|does not respond/.test(stderr);
      isAgain = code === 137 || code === 6 || (code === 11 && number % 2 === 1 && isCutOff);
      if (code !== 0 && code !== 137)
        this.#trial.say?.(`runner ${number}: exit ${code}\n${stderr.slice(-600)}`);
    }
  }

  #judge(prompt: string): Deed | undefined {
    const posts = (this.#posts += 1);
    this.#maxAtOnce = Math.max(this.#maxAtOnce, this.gateway.underWay() + 1);
    if (posts % this.#trial.every === 0) {
      this.#befalling = this.#befalling.then(() => this.#befall((this.#deaths += 1)));
      // The task exists, but the response arrives too late for a killed runner.
      return { kind: 'wait', until: this.#befalling };
    }
    const number = Number(prompt.split(' ')[1]);
    if (posts % 11 === 0) return { kind: 'limit' };
    if (number % 23 === 7) return { kind: 'lose' };
    if (number % 29 === 9) return { kind: 'doom' };
    if (number % 31 === 4) return { kind: 'refuse' };
    return undefined;
  }

  async #befall(which: number): Promise<void> {
    if (this.#isOver) return;
    const kind = {
      1: 'all runners die',
      2: 'the server dies',
      3: 'connections break',
      6: 'a runner stops',
      9: 'a runner stops',
    }[which % 10];
    this.#trial.say?.(kind ?? 'a runner dies');
    const runners = [...this.#running.values()].map(({ child }) => child);
    const runner = runners[which % Math.max(1, runners.length)];
    if (kind === undefined) runner?.kill('SIGKILL');
    else if (kind === 'all runners die') for (const each of runners) each.kill('SIGKILL');
    else if (kind === 'a runner stops') {
      runner?.kill('SIGSTOP');
      setTimeout(() => runner?.kill('SIGCONT'), stoppedMs);
    } else if (kind === 'the server dies') {
      await this.#server.kill();
      await this.#server.start();
    } else this.#proxy.cutAll();
  }

  async #outcome(file: string): Promise<Outcome> {
    const last = this.#machines.machine(this.#direct);
    const { view: status } = await read(last, 'batch', 'status', file);
    const remaining = await this.#leftOf(status['rows'] as RowView[]);
    const args = [...this.#machines.output, '--poll-interval', '50ms', '--retries', '20'];
    const { view } = await read(last, 'batch', 'run', file, ...args);
    const bad = new Map((view['rows'] as RowView[]).map((row) => [row.id, row]));
    const astray: string[] = [];
    for (let n = 0; n < this.#trial.rows; n += 1) {
      const row = bad.get(`row-${n}`);
      const isReported =
        row !== undefined && row.state !== 'running' && row.state !== 'new' && row.next !== undefined;
      if (!isReported && !this.#isWhole(n)) astray.push(`row-${n} ${JSON.stringify(row)}`);
    }
    const paid = [...this.gateway.charges].filter(([, times]) => times > 1);
    return {
      paidTwice: paid.map(([prompt]) => prompt),
      astray,
      left: remaining,
      unknown: [...bad.values()].filter(({ state }) => state === 'unknown').length,
      done: this.#trial.rows - bad.size,
      maxAtOnce: this.#maxAtOnce,
      deaths: this.#deaths,
    };
  }

  // Describes the rows that are new, running or blocked, and prints the records of their jobs.
  async #leftOf(rows: RowView[]): Promise<string[]> {
    const remaining: string[] = [];
    for (const { id, state } of rows.filter((row) => ['new', 'running', 'blocked'].includes(row.state))) {
      const jobs = `select job from mgw.events where line like '%clips/${id}"%'`;
      const query = (statement: string): Promise<string> => this.#server.query(statement, this.#database);
      this.#trial.say?.(await query(`select line from mgw.events where job in (${jobs}) order by job, n`));
      const queued = await query(`select state, outcome, lost, why from mgw.batch_rows where id = '${id}'`);
      remaining.push(`${id} ${state}, in the queue: ${queued.replaceAll('\t', ' ')}`);
    }
    return remaining;
  }

  #isWhole(row: number): boolean {
    const path = join(this.#machines.shared, 'out', `row-${row}.mp4`);
    return existsSync(path) && readFileSync(path).equals(this.gateway.video);
  }
}
