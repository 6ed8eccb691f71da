import { closeSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { watchDisk, type DiskOperation } from '../support/disk-operations.ts';

/**
 * The way in which a disk operation fails: it has no effect, it takes effect anyway, half of it is
 * written, or every operation that needs space fails from then on.
 */
export const failures = ['ENOSPC', 'EIO after', 'short write', 'full'] as const;

/**
 * The incident at the n-th disk operation (counted from 1): the process is killed before it, or in
 * the middle of a write, or the operation fails.
 */
export interface Crash {
  at: number;
  how: 'killed' | 'torn' | (typeof failures)[number];
}

let count = 0;

/** Resets the count; with undefined, every operation passes. */
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

/** The number of operations since a crash was armed. */
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
    // The caller will not close a file whose opening failed.
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

// An operation of Node either returns a promise, or has ended when it returns.
function once(result: unknown, act: (done: unknown) => unknown): unknown {
  return result instanceof Promise ? result.then(act) : act(result);
}
