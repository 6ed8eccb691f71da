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
import { launch } from './launch.ts';
import { runHere, wordsOf } from './one-process.ts';

const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));

/** An empty home with `mgw` on the PATH, and a shell that starts there. */
export interface Shell {
  home: string;
  env: NodeJS.ProcessEnv;
  /**
   * Runs a line as a shell does, with an empty standard input. A line of plain words for mgw, or of several such
   * commands with pipes between them, runs in this process. The process's folder and home change meanwhile, so nothing
   * else may need them.
   */
  run(line: string): Promise<Ran>;
  /** Removes the home. */
  close(): void;
}

/** The result of a command line. */
export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** A fresh home. `env` adds to the few predefined variables. */
export function newShell(env: NodeJS.ProcessEnv = {}): Shell {
  const home = mkdtempSync(join(tmpdir(), 'mgw-home-'));
  const programs = join(home, '.bin');
  mkdirSync(programs);
  program(programs, 'mgw', `exec '${process.execPath}' '${bin}' "$@"`);
  const variables = {
    HOME: home,
    PATH: `${programs}${delimiter}${process.env['PATH'] ?? ''}`,
    XDG_CACHE_HOME: join(tmpdir(), 'mgw-cache'),
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

/** Puts a shell script onto the PATH of a home. */
export function program(folder: string, name: string, text: string): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`);
  chmodSync(join(folder, name), 0o755);
}

/** `mgw` commands, each of which reads the output of the one before. */
interface Plain {
  commands: string[];
  /** The input of the first command: text, or a file. */
  text?: string | undefined;
  from?: string | undefined;
  /** A file for the output of the last command. */
  to?: string | undefined;
}

// Captures the parts of `echo "TEXT" | …`, `cat FILE | …`, `… < FILE` and `… > FILE`.
const parts =
  /^(?:echo "(?<text>[^"$]*)" \| |cat (?<read>[\w./-]+) \| )?(?<all>mgw .*?|\w+=.*?)(?: < (?<from>[\w./-]+))?(?: > (?<to>[\w./-]+))?$/;

function plainOf(line: string): Plain | undefined {
  const { text, read, all = '', from = read, to } = parts.exec(line)?.groups ?? {};
  const commands = all.split(' | ');
  // These need a separate process: a job that could not be delivered belongs to the process that submitted it, and the
  // version is printed before `main`.
  const needsEnd = to === '/dev/full' && / submit | --version/.test(all);
  if (!commands.every(isPlain) || needsEnd) return undefined;
  return { commands, text: text === undefined ? undefined : `${text}\n`, from, to };
}

// Whether a command can run in this process. A script would get the streams of this process, and only the build
// contains the page of the gallery.
function isPlain(command: string): boolean {
  const bare = command.replace(/'[^']*'/g, '');
  return /^(\w+=\S+ )*mgw /.test(bare) && !/[|<>&;$'\\*~]|\b(sandbox exec|jobs gallery)\b/.test(bare);
}

let turn: Promise<unknown> = Promise.resolve();

/** One at a time: a process has one folder and one home. */
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
    // The file may still be opening, and would appear in a home that is being removed.
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
