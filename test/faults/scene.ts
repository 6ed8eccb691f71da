import { rmSync, writeFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { canaryKey, newUser, type CliJson, type CliResult, type Running, type User } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';
import { newAuthority, type Authority, type Subject } from '../support/certificates.ts';
import { mountDisk, type Disk } from './disk.ts';
import { FaultGateway, type GatewayOptions } from './gateway.ts';
import { expectInvariants } from './invariants.ts';
import { listen, type Listener } from './listener.ts';

export { fast } from './dialects.ts';

/** Options of a {@link Scene}. */
export interface SceneOptions extends Omit<GatewayOptions, 'protocol'> {
  env?: NodeJS.ProcessEnv;
}

type RunOptions = NonNullable<Parameters<User['run']>[1]>;
type InsideOptions = Pick<RunOptions, 'env'> & { stdin?: string | Buffer };

/** A user, a gateway and a record of their actions, for one row of docs/faults.md. */
export class Scene {
  readonly gateway: FaultGateway;
  readonly user: User;
  readonly runs: CliResult[] = [];
  /** Output files. Their content must have been served by the gateway. */
  readonly outputs: string[];
  /** Other folders that mgw may have written to. */
  readonly folders: string[] = [];
  /** The texts of requests to other hosts. */
  readonly #told: string[] = [];
  readonly #endings: (() => unknown)[] = [];
  #last: { args: string[]; env?: NodeJS.ProcessEnv } | undefined;

  private constructor(gateway: FaultGateway, env: NodeJS.ProcessEnv) {
    this.gateway = gateway;
    this.user = newUser(gateway.url, env);
    this.outputs = [this.out];
    if (env['MGW_TEST_CA'] !== undefined) this.#trust(env['MGW_TEST_CA']);
  }

  static async open(protocol: GatewayOptions['protocol'], options: SceneOptions = {}): Promise<Scene> {
    const gateway = await FaultGateway.start({ ...options, protocol });
    return new Scene(gateway, options.env ?? {});
  }

  /** The output path of {@link submit}. */
  get out(): string {
    return join(this.user.cwd, `out.${this.gateway.dialect.extension}`);
  }

  /** Submits, waits and saves. Runs in this process, unless the user trusts a certificate. */
  submit(...extra: string[]): Promise<CliResult> {
    const args = this.command(...extra);
    return this.#trusts ? this.run(args) : this.#inside(args);
  }

  /** Returns the arguments of {@link submit}. */
  command(...extra: string[]): string[] {
    return this.typed('--json', ...extra);
  }

  /** Returns the arguments of {@link submit} without --json. */
  typed(...extra: string[]): string[] {
    const { command, fast } = this.gateway.dialect;
    return [...command, '-o', this.out, ...fast, ...extra];
  }

  run(args: string[], options?: RunOptions): Promise<CliResult> {
    return this.start(args, options).result;
  }

  start(args: string[], options?: RunOptions): Running {
    this.#last = { args, env: options?.env };
    const { child, result } = this.user.start(args, options);
    return { child, result: result.then((ended) => (this.runs.push(ended), ended)) };
  }

  /** Runs a command line with --json in this process, for additional cases of a row. Returns the document. */
  async here(args: string[], options: InsideOptions = {}): Promise<CliJson> {
    return (await this.#inside(['--json', ...args.filter((arg) => arg !== '--json')], options)).json;
  }

  /** Runs a command line in this process, with human-readable output. */
  seen(args: string[]): Promise<CliResult> {
    return this.#inside(args);
  }

  /**
   * Repeats the last command with human-readable output. Runs in this process, unless the user trusts a certificate:
   * only a new process reads it.
   */
  again(): Promise<CliResult> {
    const { args = [], env } = this.#last ?? {};
    const words = args.filter((arg) => arg !== '--json');
    return this.#trusts ? this.run(words, { env }) : this.#inside(words, { env });
  }

  async #inside(args: string[], options: InsideOptions = {}): Promise<CliResult> {
    this.#last = { args, env: options.env };
    const ended = await runHere(args, { ...this.user.env, ...options.env }, options.stdin);
    this.runs.push(ended);
    return ended;
  }

  // True if the user trusts a certificate. Node reads certificates only at the start of a process, so such a user's
  // commands need separate processes.
  get #trusts(): boolean {
    return this.user.env['NODE_EXTRA_CA_CERTS'] !== undefined;
  }

  /** Repeats the last command. Expects the exit code `code` and no submission. */
  async expectRerun(code: number): Promise<CliResult> {
    const before = this.gateway.submissions.length;
    const ended = await this.again();
    expect(ended.code, `the rerun: ${shown(ended)}`).toBe(code);
    expect(this.gateway.submissions.length - before, 'submissions of the rerun').toBe(0);
    return ended;
  }

  /** Starts a foreign server. The invariants require that no request to it contains the key. */
  stranger(answer: RequestListener, host = '127.0.0.2'): Promise<Listener> {
    return this.server(host, (request, response) => {
      this.#told.push([request.url, ...request.rawHeaders].join('\n'));
      answer(request, response);
    });
  }

  /** Starts another server. The server closes when the scene ends. */
  async server(host: string, answer: RequestListener): Promise<Listener> {
    const listener = await listen({ host, answer });
    this.onEnd(() => listener.stop());
    return listener;
  }

  /**
   * Checks a row's invariants. `creations` is the maximum number of tasks; `mine` is content that the user has put at
   * the output path.
   */
  expectInvariants(creations: number, mine: Buffer[] = []): Promise<CliJson['job'][]> {
    const { port } = new URL(this.gateway.url);
    const elsewhere = this.gateway.seen.filter(({ headers }) => !headers['host']?.endsWith(`:${port}`));
    const strangers = [...elsewhere.map((seen) => JSON.stringify(seen)), ...this.#told];
    return expectInvariants(
      {
        created: this.gateway.created,
        runs: this.runs,
        env: this.user.env,
        folders: [this.user.cwd, ...this.folders],
        keyFiles: [],
        outputs: this.outputs,
        sources: [this.gateway.served.content, ...mine],
        key: canaryKey,
        strangers,
      },
      creations,
    );
  }

  /** Mounts a file system of the given size at a folder of the user, until the scene ends. */
  mount(folder: string, kilobytes: number): Disk {
    const disk = mountDisk(join(this.user.cwd, folder), kilobytes);
    this.onEnd(() => disk.unmount());
    return disk;
  }

  /** Registers a function that runs when the scene ends. */
  onEnd(ending: () => unknown): void {
    this.#endings.push(ending);
  }

  async close(): Promise<void> {
    for (const ending of this.#endings.reverse()) await ending();
    await this.gateway.close();
    rmSync(this.user.cwd, { recursive: true, force: true });
  }

  #trust(authority: string): void {
    const path = join(this.user.cwd, 'authority.pem');
    writeFileSync(path, authority);
    Object.assign(this.user.env, { NODE_EXTRA_CA_CERTS: path, MGW_TEST_CA: undefined });
  }
}

/** Opens a scene that ends when the test ends. */
export type Open = (protocol: GatewayOptions['protocol'], options?: SceneOptions) => Promise<Scene>;

/** A test whose fixture `open` opens scenes. */
export const it = test.extend<{ open: Open }>({
  // eslint-disable-next-line no-empty-pattern -- vitest requires a pattern, even for no other fixtures
  open: async ({}, use) => {
    const scenes: Scene[] = [];
    await use(async (protocol, options) => {
      const scene = await Scene.open(protocol, options);
      scenes.push(scene);
      return scene;
    });
    await Promise.all(scenes.map((scene) => scene.close()));
  },
});

/** Returns a run's output as text, for the message of a failed expectation. */
export function shown({ code, stdout, stderr }: CliResult): string {
  return `exit ${code}\n${stderr}${stdout}`;
}

let authority: Authority | undefined;

/** Returns the options for a gateway over TLS whose certificate the user trusts. */
export function secured(subject: Subject = { hosts: ['localhost'] }): SceneOptions {
  authority ??= newAuthority();
  return { tls: authority.issue(subject), env: { MGW_TEST_CA: authority.cert } };
}
