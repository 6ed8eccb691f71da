import {
  chmodSync,
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { cacheHome } from './compile-cache.ts';
import { launch } from './launch.ts';
import { runHere, wordsOf } from './one-process.ts';

const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));

/** An empty home with `mgw` on the PATH, and a shell that starts in that home. */
export interface Shell {
  home: string;
  env: NodeJS.ProcessEnv;
  /**
   * Runs a line like a shell, with an empty standard input. A line that consists of plain mgw commands and pipes runs
   * in this process. During such a run, the process has a different current folder and home, so nothing else may depend
   * on either.
   */
  run(line: string): Promise<Ran>;
  /** Removes the home. */
  close(): void;
}

/** A command line's result. */
export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** Opens a shell in a new home. `env` adds variables to the few predefined ones. */
export function newShell(env: NodeJS.ProcessEnv = {}): Shell {
  const home = mkdtempSync(join(tmpdir(), 'mgw-home-'));
  const programs = join(home, '.bin');
  mkdirSync(programs);
  program(programs, 'mgw', `exec '${process.execPath}' '${bin}' "$@"`);
  const variables = {
    HOME: home,
    PATH: `${programs}${delimiter}${process.env['PATH'] ?? ''}`,
    XDG_CACHE_HOME: cacheHome(),
    ...env,
  };
  return {
    home,
    env: variables,
    run: (line) => {
      const plain = plainOf(line);
      if (plain === undefined) return runLine(line, home, variables);
      return inTurn(() => runAllInside(plain, home, variables));
    },
    close: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** Writes an executable shell script called `name` into a folder. */
export function program(folder: string, name: string, text: string): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`);
  chmodSync(join(folder, name), 0o755);
}

/** `mgw` commands, each of which reads the previous command's output. */
interface Plain {
  commands: string[];
  /** The first command's input, if it is text. */
  text?: string | undefined;
  from?: string | undefined;
  /** A file for the last command's output. */
  to?: string | undefined;
}

// Captures the parts of the lines `echo "TEXT" | …`, `cat FILE | …`, `… < FILE` and `… > FILE`.
const parts =
  /^(?:echo "(?<text>[^"$]*)" \| |cat (?<read>[\w./-]+) \| )?(?<all>mgw .*?|\w+=.*?)(?: < (?<from>[\w./-]+))?(?: > (?<to>[\w./-]+))?$/;

function plainOf(line: string): Plain | undefined {
  const { text, read, all = '', from = read, to } = parts.exec(line)?.groups ?? {};
  const commands = all.split(' | ');
  // If the output goes to a full device, two kinds of lines need a separate process: an undelivered job belongs to the
  // process that submitted it, and the version is printed before `main` runs.
  const needsEnd = to === '/dev/full' && / submit | --version/.test(all);
  if (!commands.every(isPlain) || needsEnd) return undefined;
  return { commands, text: text === undefined ? undefined : `${text}\n`, from, to };
}

// Whether a command can run in this process. `sandbox exec` would give this process's streams to a script, and only the
// build contains the gallery's page.
function isPlain(command: string): boolean {
  const bare = command.replace(/'[^']*'/g, '');
  return /^(\w+=\S+ )*mgw /.test(bare) && !/[|<>&;$'\\*~]|\b(sandbox exec|jobs gallery)\b/.test(bare);
}

let turn: Promise<unknown> = Promise.resolve();

/** Runs calls one at a time, because a process has one current folder and one home. */
function inTurn(act: () => Promise<Ran>): Promise<Ran> {
  const mine = turn.then(act);
  turn = mine.catch(() => undefined);
  return mine;
}

async function runAllInside(
  { commands, text, from, to }: Plain,
  home: string,
  env: NodeJS.ProcessEnv,
): Promise<Ran> {
  let input: Buffer | string = from === undefined ? (text ?? '') : readFileSync(resolve(home, from));
  const ran: Ran = { code: -1, stdout: '', stderr: '' };
  for (const [index, command] of commands.entries()) {
    const isLast = index === commands.length - 1;
    const file = isLast && to !== undefined ? createWriteStream(resolve(home, to)) : undefined;
    const { code, stdout, stderr } = await runInside(command, home, env, input, file);
    file?.destroy();
    // Wait for the file. A file that is still being opened could appear in a home that is being removed.
    if (file?.closed === false) await new Promise<void>((closed) => file.once('close', closed));
    input = stdout;
    Object.assign(ran, { code, stdout, stderr: ran.stderr + stderr });
  }
  return ran;
}

async function runInside(
  command: string,
  cwd: string,
  variables: NodeJS.ProcessEnv,
  input: Buffer | string,
  file?: Writable,
): Promise<Ran> {
  const words = wordsOf(command);
  const at = words.indexOf('mgw');
  const set = words.slice(0, at).map((word) => word.split('=', 2) as [string, string]);
  const env = { ...variables, ...Object.fromEntries(set) };
  const [folder, home] = [process.cwd(), process.env['HOME']];
  process.chdir(cwd);
  process.env['HOME'] = cwd;
  try {
    return await runHere(words.slice(at + 1), env, input, undefined, file);
  } finally {
    process.chdir(folder);
    process.env['HOME'] = home;
  }
}

function runLine(line: string, cwd: string, env: NodeJS.ProcessEnv): Promise<Ran> {
  const child = launch('sh', ['-c', line], { cwd, env });
  child.stdin.end();
  const ran: Ran = { code: -1, stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (ran.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (ran.stderr += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code: number | null) => resolve({ ...ran, code: code ?? 128 }));
  });
}
