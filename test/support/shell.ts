import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from './launch.ts';
import { runHere, wordsOf } from './one-process.ts';

const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));

/** A home with nothing in it but a `mgw` on the PATH, and a shell that starts there. */
export interface Shell {
  home: string;
  env: NodeJS.ProcessEnv;
  /**
   * Runs a line as a shell does; what is not read from stdin is at its end at once. One of plain words for mgw runs in
   * this very process, whose folder and home change meanwhile: nothing else may need them.
   */
  run(line: string): Promise<Ran>;
  /** Takes the home away. */
  close(): void;
}

/** The result of a command line. */
export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** A fresh home. `env` adds to the few variables that are set. */
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
    run: (line) =>
      isPlain(line) ? inTurn(() => runInside(line, home, variables)) : runLine(line, home, variables),
    close: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** Puts a shell script onto the PATH of a home. */
export function program(folder: string, name: string, text: string): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`);
  chmodSync(join(folder, name), 0o755);
}

// A script gets the streams of the process that runs it; the page of the gallery is there in what is built alone.
function isPlain(line: string): boolean {
  return /^(\w+=\S+ )*mgw /.test(line) && !/[|<>&;$'\\*~]|\b(sandbox exec|jobs gallery)\b/.test(line);
}

let turn: Promise<unknown> = Promise.resolve();

/** One at a time: a process has one folder and one home. */
function inTurn(act: () => Promise<Ran>): Promise<Ran> {
  const mine = turn.then(act);
  turn = mine.catch(() => undefined);
  return mine;
}

async function runInside(line: string, cwd: string, variables: NodeJS.ProcessEnv): Promise<Ran> {
  const words = wordsOf(line);
  const at = words.indexOf('mgw');
  const set = words.slice(0, at).map((word) => word.split('=', 2) as [string, string]);
  const [folder, home] = [process.cwd(), process.env['HOME']];
  process.chdir(cwd);
  process.env['HOME'] = cwd;
  try {
    return await runHere(words.slice(at + 1), { ...variables, ...Object.fromEntries(set) });
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
