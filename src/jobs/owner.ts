import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Owner } from '../job.ts';

/** This process, so that another one can tell whether it is still alive. */
export function currentOwner(): Owner {
  return { pid: process.pid, start: startOf(process.pid), host: thisHost() };
}

/**
 * True where the process is still running on this machine. A process of another machine, or from before a
 * restart of this one, counts as gone: nothing is ever sent again on that ground alone, since each attempt to
 * send is claimed.
 */
export function isAlive(owner: Owner): boolean {
  if (owner.host !== thisHost() || !(owner.pid > 0)) return false;
  try {
    process.kill(owner.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return false;
  }
  return owner.start === startOf(owner.pid);
}

// The host's name with the id of its boot, where the system tells it.
function thisHost(): string {
  return `${hostname()} ${readSystem('/proc/sys/kernel/random/boot_id').slice(0, 8)}`.trim();
}

// A process id is used again; its start time is not. Fields of stat are counted behind the name in brackets: the
// state first, the start as the twentieth. A zombie has ended, though its number is still taken.
function startOf(pid: number): string {
  const [state = '', ...fields] = readSystem(`/proc/${pid}/stat`).split(') ').pop()?.split(' ') ?? [];
  return state === 'Z' || state === 'X' ? '' : (fields[18] ?? '');
}

function readSystem(path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
}
