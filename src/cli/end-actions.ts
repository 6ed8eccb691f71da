import { type ChildProcess, spawn } from 'node:child_process';
import type { Context } from './context.ts';
import { type Io, write } from './io.ts';
import { reportToWorkflow } from './output/github.ts';
import { exitCodeOf, type Outcome } from './output/outcome.ts';
import type { Progress } from './output/progress.ts';
import { messageOf } from '../errors.ts';
import type { JobFile } from '../job.ts';
import { printableLine } from '../printable.ts';

/**
 * Runs the final steps after a command's outcome is printed: reports to a workflow, notifies the user, opens the file.
 * Never throws, and does not change the outcome.
 */
export async function runEndActions(outcome: Outcome, context: Context): Promise<void> {
  const { io, globals, progress } = context;
  if (outcome.isRun) await reportToWorkflow(outcome, context);
  if (globals.notify) {
    const sequence = notification(notificationText(outcome), io);
    if (sequence !== undefined) await write(io.stderr, sequence).catch(() => undefined);
  }
  const files = (outcome.json['files'] as JobFile[] | undefined) ?? [];
  if (globals.open && io.stderr.isTTY === true) await openFirst(files, progress);
}

/**
 * Runs the `--on-done` command in a shell, with the JSON document on its stdin, and waits for it. Its output goes to
 * stderr, because stdout is for data. Never throws. A failure is reported on stderr and does not change the exit code.
 */
export async function runOnDone(command: string, document: string, { stderr, env }: Io): Promise<void> {
  const failure = await shellFailure(command, document, env).catch(messageOf);
  if (failure !== undefined)
    await write(stderr, `mgw: --on-done failed: ${printableLine(failure)}\n`).catch(() => undefined);
}

// Returns why the command failed; undefined if the command succeeded. Throws if the command cannot be started.
async function shellFailure(command: string, document: string, env: Io['env']): Promise<string | undefined> {
  const child = spawn(command, { shell: true, stdio: ['pipe', 2, 2], env });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) =>
      resolve(
        code === 0 ? undefined : code === null ? `it was ended by ${signal}` : `it exited with ${code}`,
      ),
    );
    // The command may close its stdin without reading it.
    child.stdin?.on('error', () => undefined).end(`${document}\n`);
  });
}

function notificationText(outcome: Outcome): string {
  const code = exitCodeOf(outcome);
  const { id } = (outcome.json['job'] as { id?: string } | undefined) ?? {};
  return `${id ?? 'mgw'}: ${code === 0 ? 'done' : `exited with ${code}`}`;
}

async function openFirst(files: readonly JobFile[], progress: Progress): Promise<void> {
  const file = files.find(({ path }) => path !== '-');
  if (file === undefined) return;
  await openFile(file.path).catch((error: unknown) =>
    progress.note(`${file.path} cannot be opened: ${messageOf(error)}`),
  );
}

const bell = '\u0007';

/**
 * Returns the control sequence that makes a terminal notify its user: OSC 9 or OSC 777 if the terminal is known to
 * support it, else the bell. Returns undefined if stderr is not a terminal. tmux and screen forward only the bell.
 */
export function notification(text: string, { stderr, env }: Pick<Io, 'stderr' | 'env'>): string | undefined {
  if (stderr.isTTY !== true || env['TERM'] === 'dumb') return undefined;
  if (env['TMUX'] !== undefined || env['TERM']?.startsWith('screen')) return bell;
  const safeText = printableLine(text, 200).replaceAll(';', ',');
  const program = env['TERM_PROGRAM'] ?? '';
  if (['iTerm.app', 'WezTerm', 'ghostty'].includes(program) || env['TERM'] === 'xterm-kitty')
    return `\u001b]9;${safeText}${bell}`;
  if (/^(foot|rxvt)/.test(env['TERM'] ?? '')) return `\u001b]777;notify;mgw;${safeText}${bell}`;
  return bell;
}

/** Returns the program that opens a file on the user's desktop, and its arguments. No shell interprets the path. */
export function openerOf(path: string, platform: NodeJS.Platform = process.platform): [string, string[]] {
  if (platform === 'darwin') return ['open', [path]];
  // `start` is built into cmd, which would interpret the path. Explorer opens the file without interpreting its path.
  if (platform === 'win32') return ['explorer.exe', [path]];
  return ['xdg-open', [path]];
}

// The maximum wait for the opener, in ms. The opener may be the viewer itself, which may run for hours.
const maxOpenerWaitMs = 2000;

/**
 * Opens a file in a program that outlives mgw. `path` is absolute, so that it cannot be mistaken for a flag.
 * @throws Error with the reason why the file could not be opened.
 */
export async function openFile(path: string, opener = openerOf(path)): Promise<void> {
  const [program, args] = opener;
  const child = spawn(program, args, { stdio: 'ignore', detached: true });
  const code = await waitForExit(child);
  child.unref();
  // Explorer exits with 1 even on success.
  if (code !== 0 && code !== undefined && program !== 'explorer.exe')
    throw new Error(`${program} exited with ${code}`);
}

/** Resolves with the exit code; undefined if the program is still running after `maxOpenerWaitMs`. */
function waitForExit(child: ChildProcess): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), maxOpenerWaitMs);
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      settle();
    };
    child.once('error', (error) => finish(() => reject(error)));
    child.once('exit', (code) => finish(() => resolve(code ?? 1)));
  });
}
