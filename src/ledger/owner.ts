import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Life, Owner } from '../job.ts';

// A snapshot that is restored, or a container that starts again, may give a new process the id, the start and the
// boot of an old one; this it cannot.
let made: string | undefined;

function instance(): string {
  return (made ??= randomUUID());
}

let own: Owner | undefined;

/** This process, so that another one can tell whether it is still alive. */
export function currentOwner(): Owner {
  own ??= { pid: process.pid, start: startOf(process.pid) ?? '', host: thisHost(), instance: instance() };
  return { ...own };
}

/**
 * Whether a process is still running. A sender asks for `alive`: an attempt of a process that cannot be shown to be
 * is in doubt. A process that takes over a file asks for `dead`: a process that cannot be seen may still be writing.
 */
export function lifeOf(owner: Owner): Life {
  if (!(owner.pid > 0)) return 'dead';
  if (owner.host !== thisHost()) return 'unknown';
  if (owner.pid === process.pid && owner.instance !== undefined && owner.instance !== instance())
    return 'dead';
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return 'dead';
  }
  if (owner.instance === instance() && owner.pid === process.pid) return 'alive';
  const start = startOf(owner.pid);
  if (start === 'ended') return 'dead';
  if (start === undefined || owner.start === '') return 'unknown';
  return start === owner.start ? 'alive' : 'dead';
}

let host: string | undefined;

// The host's name, its boot and the process namespace, if the system tells them: ids mean nothing in another one.
function thisHost(): string {
  if (host !== undefined) return host;
  const bootId = readSystem(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'))?.slice(0, 8);
  const namespace = readSystem(() => readlinkSync('/proc/self/ns/pid'))?.replace(/\D/g, '');
  host = [hostname(), bootId, namespace].filter(Boolean).join(' ');
  return host;
}

// A process id is used again; its start is not. Fields of stat are counted after the name in brackets: the state
// first, the start as the twentieth. A zombie has ended, though its id is still taken.
function startOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return startByPs(pid);
  const stat = readSystem(() => readFileSync(`/proc/${pid}/stat`, 'utf8'));
  const [state = '', ...fields] = stat?.split(') ').pop()?.split(' ') ?? [];
  return state === 'Z' || state === 'X' ? 'ended' : fields[18];
}

// macOS and the BSDs; Windows has no such command, and its starts are unknown.
function startByPs(pid: number): string | undefined {
  const args = ['-o', 'lstart=', '-p', String(pid)];
  return readSystem(() => execFileSync('ps', args, { encoding: 'utf8', stdio: 'pipe', timeout: 2000 }));
}

function readSystem(read: () => string): string | undefined {
  try {
    return read().trim() || undefined;
  } catch {
    return undefined;
  }
}
