import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { longestTimer } from '../clock.ts';
import { usageError } from '../errors.ts';
import { printableLine } from '../printable.ts';
import { storeError, type Store, type StoreDeps } from './store.ts';

const maxOutputBytes = 16 * 1024;

/**
 * Opens a store that is a program: it reads the file from stdin, gets `MGW_OBJECT_NAME`, and prints a URL (design 17). It
 * is run without a shell, and without variables that hold a secret of mgw.
 */
export function openCommandStore(
  [program = '', ...args]: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  { deadline, signal, secrets }: StoreDeps,
): Store {
  const isSecret = ([name, value = '']: [string, string | undefined]): boolean =>
    /^(MGW_API_KEY(_FILE)?|MGW_STATE|PGPASSWORD)$/.test(name) ||
    secrets.some((secret) => secret !== '' && value.includes(secret));
  const open = Object.fromEntries(Object.entries(env).filter((entry) => !isSecret(entry)));
  const upload = async (name: string, content: Uint8Array): Promise<string> => {
    const child = spawn(program, args, {
      env: { ...open, MGW_OBJECT_NAME: name.replace(/^sha256:/, '') },
      stdio: ['pipe', 'pipe', 'inherit'],
      signal: AbortSignal.any([
        signal,
        AbortSignal.timeout(Math.min(Math.ceil(deadline.remainingMs()), longestTimer)),
      ]),
    });
    // A program that exits without reading its input has its own reason.
    child.stdin.on('error', () => undefined);
    child.stdin.end(content);
    const ended = once(child, 'close') as Promise<[number | null]>;
    let output = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text: string) => (output = (output + text).slice(0, maxOutputBytes)));
    const [code] = await ended;
    if (code !== 0) throw new Error(`it ended with ${code ?? 'a signal'}`);
    return output.trim();
  };
  return {
    url: async (name, read) => {
      if (read === undefined)
        throw usageError(
          `${name} was uploaded by store.command, and needs the file again. Run the original command again.`,
        );
      const content = await read();
      const url = await upload(name, content).catch((error: unknown) => {
        signal.throwIfAborted();
        const words = error instanceof Error ? error.message : String(error);
        throw storeError(`store.command (${printableLine(program, 80)}) failed: ${words}.`, false, error);
      });
      if (/^https?:\/\/[^\s\p{Cc}]+$/u.test(url) && URL.canParse(url)) return url;
      throw storeError(`store.command (${printableLine(program, 80)}) did not print a URL.`, false);
    },
    close: () => undefined,
  };
}
