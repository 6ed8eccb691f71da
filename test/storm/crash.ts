import { closeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { watchDisk, type DiskOperation } from '../support/disk-operations.ts';

/**
 * The ways in which a disk operation fails: before it takes effect, after it has taken effect, after half of the data,
 * or together with every later operation that needs space.
 */
export const failures = ['ENOSPC', 'EIO after', 'short write', 'full'] as const;

/**
 * The incident at the n-th disk operation (counted from 1). The process is killed before the operation or in the middle
 * of a write, or the operation fails.
 */
export interface Crash {
  at: number;
  how: 'killed' | 'torn' | (typeof failures)[number];
}

let count = 0;

/** Arms a crash, and resets the count of operations. With undefined, no operation fails. */
export async function armCrash(crash: Crash | undefined): Promise<void> {
  count = 0;
  await watchDisk(
    crash &&
      ((operation, run) => {
        count += 1;
        if (crash.how === 'full' && count >= crash.at && takesRoom.has(operation.name)) throw fail('ENOSPC');
        return count === crash.at && crash.how !== 'full' ? strike(crash.how, operation, run) : run();
      }),
  );
}

/** Returns the number of operations since the last call of {@link armCrash}. */
export function countedOperations(): number {
  return count;
}

const takesRoom = new Set(['open', 'mkdir', 'link', 'rename', 'write', 'writev', 'writeFile', 'mkdtemp']);

const fail = (code: string): Error => Object.assign(new Error(`${code}: made to fail`), { code });

function strike(
  how: Exclude<Crash['how'], 'full'>,
  { name, half }: DiskOperation,
  run: () => unknown,
): unknown {
  if (how === 'short write' && half !== undefined) return half();
  if (how === 'ENOSPC' || how === 'short write') throw fail('ENOSPC');
  if (how === 'killed') return die();
  if (how === 'torn') return once((half ?? run)(), die);
  return once(run(), (done) => {
    // The caller does not close a file that it failed to open, so the file is closed here.
    if (name === 'open' && typeof done === 'number') closeSync(done);
    const closed = name === 'open' && typeof done === 'object' ? (done as FileHandle).close() : undefined;
    return once(closed, () => {
      throw fail('EIO');
    });
  });
}

function die(): never {
  process.kill(process.pid, 'SIGKILL');
  throw new Error('killed');
}

// Calls `act` once an operation has ended. A Node operation returns a promise, or has ended when the call returns.
function once(result: unknown, act: (done: unknown) => unknown): unknown {
  return result instanceof Promise ? result.then(act) : act(result);
}
