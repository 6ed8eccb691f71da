import type { Deadline } from '../clock.ts';
import type { Owner } from '../job.ts';
import type { JobDeps } from './deps.ts';
import { isAlive } from '../ledger/owner.ts';

/** A right that one living process has at a time. */
export interface Lease {
  release(): Promise<void>;
}

/**
 * Waits for the right to a name. Its holder is whoever claimed the highest number; the claim of a dead process
 * is never removed but passed over, so that no two can take it from it at once.
 * @throws the signal's reason; `late` where the deadline comes first.
 */
export async function lease(
  name: string,
  deps: JobDeps,
  wait: { deadline: Deadline; late: () => Error },
): Promise<Lease> {
  const { ledger, clock, owner, signals } = deps;
  for (let turn = 0; ;) {
    const claim = `${name}.${turn}`;
    const holder = await ledger.claim(claim, JSON.stringify(owner));
    if (holder === undefined) return { release: () => ledger.release(claim) };
    if (!isHeld(holder)) turn += 1;
    else if (wait.deadline.leftMs() <= 0) throw wait.late();
    else await clock.sleep(100, signals.soft);
  }
}

function isHeld(holder: string): boolean {
  try {
    return isAlive(JSON.parse(holder) as Owner);
  } catch {
    return false;
  }
}
