import { isFinal, ownWord, type Job } from '../../../job.ts';
import { historyOf } from '../../../jobs/history.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import type { Progress } from '../../output/progress.ts';

/**
 * Shows a job that is waited for, from now on. When it may be ready is looked up on the side: nothing waits for
 * that, and a ledger that cannot tell only leaves it out.
 */
export function showWaiting(
  job: Job,
  ledger: Ledger,
  progress: Progress,
): { update: (seen: Job) => void; end: () => void } {
  let last = job;
  let expectedAt: number | undefined;
  const update = (seen: Job): void => {
    last = seen;
    progress.waiting({
      id: seen.id,
      state: seen.state,
      native: ownWord(seen),
      percent: seen.progress,
      expectedAt,
    });
  };
  let ended = false;
  const expect = async (): Promise<void> => {
    const { usualMs } = await historyOf(ledger, job);
    const since = Date.parse(job.submitted_at ?? '');
    if (usualMs === undefined || Number.isNaN(since) || ended) return;
    expectedAt = since + usualMs;
    update(last);
  };
  // What has ended is not waited for: it is only asked once more for its result.
  if (!isFinal(job.state)) {
    expect().catch(() => undefined);
    update(job);
  }
  return {
    update,
    end: () => {
      ended = true;
      progress.ended(job.id);
    },
  };
}
