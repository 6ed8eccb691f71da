import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Life, Owner } from '../job.ts';

// Identifies this process even if a restored snapshot or a restarted container gives it the id, start time and boot id
// of an earlier process. Each thread has its own value, which all copies of mgw in the thread share. The value ends in
// the thread's id, if the system provides one.
const instanceKey = Symbol.for('mgw.instance');

function instance(): string {
  const shared: unknown = Reflect.get(globalThis, instanceKey);
  if (typeof shared === 'string') return shared;
  const own = `${randomUUID()}.${currentThread() ?? ''}`;
  Reflect.set(globalThis, instanceKey, own);
  return own;
}

// Returns undefined if /proc does not list this thread, for example because it describes another process namespace. Other
// processes would otherwise consider the thread dead.
function currentThread(): string | undefined {
  const [, thread = ''] =
    /^\d+\/task\/(\d+)$/.exec(readSystem(() => readlinkSync('/proc/thread-self')) ?? '') ?? [];
  return thread !== '' && hasThread(process.pid, thread) ? thread : undefined;
}

function hasThread(pid: number, thread: string): boolean {
  return existsSync(`/proc/${pid}/task/${thread}`);
}

function threadOf({ instance: text = '' }: Owner): string | undefined {
  return /\.(\d+)$/.exec(text)?.[1];
}

let processOwner: Owner | undefined;

/** Returns this process's identity, so that other processes can determine whether it is alive. */
export function currentOwner(): Owner {
  processOwner ??= {
    pid: process.pid,
    start: startOf(process.pid) ?? '',
    host: thisHost(),
    instance: instance(),
  };
  return { ...processOwner };
}

/**
 * Whether a process is still running. Unless a sender is known to be `alive`, the outcome of its attempt is unknown. A
 * process must be known to be `dead` before another process takes over its file, because a live process may still be
 * writing to it.
 */
export function lifeOf(owner: Owner): Life {
  if (!(owner.pid > 0)) return 'dead';
  if (owner.host !== thisHost()) return 'unknown';
  if (hasEnded(owner.pid)) return 'dead';
  const isThisPid = owner.pid === process.pid;
  if (isThisPid && owner.instance === instance()) return 'alive';
  const start = startOf(owner.pid);
  // The process may have ended before its start time was read.
  if (start === 'ended' || hasEnded(owner.pid)) return 'dead';
  if (start === undefined || owner.start === '') return 'unknown';
  if (start !== owner.start) return 'dead';
  const thread = threadOf(owner);
  if (thread !== undefined && !hasThread(owner.pid, thread)) return 'dead';
  if (!isThisPid || owner.instance === undefined) return 'alive';
  // The owner is another thread of this process, or a process from before a snapshot was restored.
  return thread === undefined || thread === threadOf(currentOwner()) ? 'unknown' : 'alive';
}

function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'EPERM';
  }
}

let host: string | undefined;

// Returns the host name, boot id and process namespace, if the system provides them. A process id is meaningful only in
// combination with these.
function thisHost(): string {
  return (host ??= [
    hostname(),
    readSystem(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'))?.slice(0, 8),
    readSystem(() => readlinkSync('/proc/self/ns/pid'))?.replace(/\D/g, ''),
  ]
    .filter(Boolean)
    .join(' '));
}

// Returns a process's start time. Processes are compared by id and start time, because ids are reused. The fields of
// stat are counted after the name in parentheses: the state is the first, the start time the twentieth. A zombie has
// ended although its id is still in use.
function startOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return startByPs(pid);
  const stat = readSystem(() => readFileSync(`/proc/${pid}/stat`, 'utf8'));
  const [state = '', ...fields] = stat?.split(') ').pop()?.split(' ') ?? [];
  return state === 'Z' ? 'ended' : fields[18];
}

// For macOS and the BSDs. Windows has no ps, so start times are unknown there.
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
