import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { cacheHome } from './compile-cache.ts';
import { launch, type Launched } from './launch.ts';

// Relative to the project's folder rather than to this file, because the storm tests are built in a different folder.
const bin = resolve('bin/mgw.js');

/** The result of running a command. */
export interface CliResult {
  code: number;
  stdout: string;
  stderr: string;
  /** The JSON document that `--json` prints. */
  json: CliJson;
}

export interface CliJson {
  ok: boolean;
  exit_code: number;
  job: Record<string, unknown> & { id: string; handle?: string; state: string };
  files: { path: string; bytes: number; sha256: string }[];
  error: {
    code: string;
    message: string;
    charged: string;
    retry: string;
    next?: string[];
    request_id?: string;
  };
  [name: string]: unknown;
}

/** A user of the command line, with a separate home folder. */
export interface User {
  /** The user's current folder. */
  cwd: string;
  env: NodeJS.ProcessEnv;
  run(args: string[], options?: { stdin?: string; env?: NodeJS.ProcessEnv }): Promise<CliResult>;
  start(args: string[], options?: { stdin?: string; env?: NodeJS.ProcessEnv }): Running;
}

export interface Running {
  child: Launched;
  result: Promise<CliResult>;
}

/** The API key used in tests. No output may contain it. */
export const canaryKey = 'sk-canary-5d41402abc4b2a76b9719d911017c592';

/** Returns a new user, whose gateway is configured if `baseUrl` is given. */
export function newUser(baseUrl?: string, extra: NodeJS.ProcessEnv = {}): User {
  const home = mkdtempSync(join(tmpdir(), 'mgw-test-'));
  const env: NodeJS.ProcessEnv = {
    PATH: process.env['PATH'],
    HOME: home,
    MGW_STATE_DIR: join(home, 'state'),
    MGW_CONFIG_DIR: join(home, 'config'),
    // All users share one compile cache.
    XDG_CACHE_HOME: cacheHome(),
    ...(baseUrl !== undefined && { MGW_BASE_URL: baseUrl, MGW_API_KEY: canaryKey }),
    ...extra,
  };
  const start: User['start'] = (args, options = {}) =>
    runningOf(args, home, { ...env, ...options.env }, options.stdin);
  return { cwd: home, env, start, run: (args, options) => start(args, options).result };
}

function runningOf(args: string[], cwd: string, env: NodeJS.ProcessEnv, stdin = ''): Running {
  const child = launch(process.execPath, [bin, ...args], { cwd, env });
  child.stdin.on('error', () => undefined);
  child.stdin.end(stdin);
  const result = Promise.all([text(child.stdout), text(child.stderr), exit(child)]).then(
    ([stdout, stderr, code]) => ({
      code,
      stdout,
      stderr,
      get json(): CliJson {
        return JSON.parse(stdout) as CliJson;
      },
    }),
  );
  return { child, result };
}

async function text(stream: NodeJS.ReadableStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}

function exit(child: Launched): Promise<number> {
  return new Promise((resolve) => {
    child.once('close', (code: number | null, signal: NodeJS.Signals | null) =>
      resolve(code ?? (signal === 'SIGKILL' ? 137 : 143)),
    );
  });
}
