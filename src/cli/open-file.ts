import { spawn, type ChildProcess } from 'node:child_process';

/** The program that shows a file as the person's desktop does, and its arguments; no shell reads the path. */
export function openerOf(path: string, platform: NodeJS.Platform = process.platform): [string, string[]] {
  if (platform === 'darwin') return ['open', [path]];
  // `start` is a word of cmd, which would read the path; this does the same.
  if (platform === 'win32') return ['explorer.exe', [path]];
  return ['xdg-open', [path]];
}

// A viewer may run for hours in the place of its opener: it is not waited for.
const openerMs = 2000;

/**
 * Shows a file, which goes on when mgw ends. `path` is absolute, so that it is no flag.
 * @throws Error whose message says why it could not be shown.
 */
export async function openFile(path: string, opener = openerOf(path)): Promise<void> {
  const [program, args] = opener;
  const child = spawn(program, args, { stdio: 'ignore', detached: true });
  const code = await ended(child);
  child.unref();
  // Explorer ends with 1 whatever it did.
  if (code !== 0 && code !== undefined && program !== 'explorer.exe')
    throw new Error(`${program} ended with ${code}`);
}

/** The exit code, undefined for a program that is still running. */
function ended(child: ChildProcess): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), openerMs);
    const end = (settle: () => void): void => {
      clearTimeout(timer);
      settle();
    };
    child.once('error', (error) => end(() => reject(error)));
    child.once('exit', (code) => end(() => resolve(code ?? 1)));
  });
}
