import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import { systemClock, type Clock } from '../../src/clock.ts';
import { newUser, type CliJson, type CliResult, type User } from './cli.ts';

/**
 * Runs `mgw` in this process, which takes a tenth of the time that a separate process takes. Writes stdout to `file`,
 * if set. `program` replaces the program that runs.
 */
export async function runHere(
  args: string[],
  env: NodeJS.ProcessEnv,
  input: Buffer | string = '',
  clock = hurried(),
  file?: Writable,
  program = main,
): Promise<CliResult> {
  const [stdin, stdout, stderr] = [new PassThrough(), new Gathered(), new Gathered()];
  stdin.end(input);
  const code = await program(args, { stdin, stdout: file ?? stdout, stderr, env, clock });
  return {
    code,
    stdout: stdout.text,
    stderr: stderr.text,
    get json(): CliJson {
      return JSON.parse(stdout.text) as CliJson;
    },
  };
}

/** The factor by which the pauses of a command in this process are shortened. */
export const hurry = 10;

/** Returns a clock whose pauses are shorter by the factor `times`, but appear to last their full time. */
export function hurried(times = hurry): Clock {
  let skipped = 0;
  return {
    now: () => systemClock.now() + Math.round(skipped),
    monotonic: () => systemClock.monotonic() + skipped,
    sleep: async (ms, signal) => {
      await systemClock.sleep(ms / times, signal);
      skipped += ms - ms / times;
    },
  };
}

/** Runs `mgw` in this process for a user. Relative paths start from the user's folder. */
export function runHereAs(
  { cwd, env }: User,
  args: string[],
  input?: string,
  clock?: Clock,
  program?: typeof main,
): Promise<CliResult> {
  return runHere(
    args.map((word, index) => pathIn(cwd, args[index - 1], word)),
    env,
    input,
    clock,
    undefined,
    program,
  );
}

// Returns `word` as a path in `folder` if the word is an output or an existing file. Otherwise, returns `word`
// unchanged.
function pathIn(folder: string, flag: string | undefined, word: string): string {
  const [at, path] = word.startsWith('@') ? ['@', word.slice(1)] : ['', word];
  const isOutput = flag === '-o' && word !== '-' && !word.includes('://');
  if (path === '' || isAbsolute(path)) return word;
  const isFile = (): boolean => existsSync(join(folder, path)) && statSync(join(folder, path)).isFile();
  return isOutput || isFile() ? `${at}${folder}/${path}` : word;
}

/** Returns a {@link newUser} whose `run` uses this process. `start` uses a separate process. */
export function userHere(...home: Parameters<typeof newUser>): User {
  const user = newUser(...home);
  const run: User['run'] = (args, { stdin, env } = {}) =>
    runHereAs({ ...user, env: { ...user.env, ...env } }, args, stdin);
  return { ...user, run };
}

/** Runs `mgw` in this process for a user with an empty home. */
export async function runAtNewHome(args: string[]): Promise<CliResult> {
  const home = mkdtempSync(join(tmpdir(), 'mgw-home-'));
  const places = { HOME: home, MGW_STATE_DIR: join(home, 'state'), MGW_CONFIG_DIR: join(home, 'config') };
  try {
    return await runHere(args, places);
  } finally {
    rmSync(home, { recursive: true });
  }
}

// Each run in this process adds signal listeners. The eleventh would cause a warning about a leak.
process.setMaxListeners(0);

class Gathered extends Writable {
  readonly #chunks: Buffer[] = [];
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }
  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}

/** Splits a command line whose only shell syntax is quotes into words. */
export function wordsOf(line: string): string[] {
  const words = [...line.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)];
  return words.map(([, double, single, bare]) => double ?? single ?? bare ?? '');
}
