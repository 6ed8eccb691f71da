import { isFinal, type Job } from '../../../job.ts';
import { usualDurationMs } from '../../../jobs/history.ts';
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
      native: nativeStatus(seen),
      percent: seen.progress,
      expectedAt,
    });
  };
  let ended = false;
  void usual(ledger, job).then((ms) => {
    const since = Date.parse(job.submitted_at ?? '');
    if (ms === undefined || Number.isNaN(since) || ended) return;
    expectedAt = since + ms;
    update(last);
  });
  // What has ended is not waited for: it is only asked once more for its result.
  if (!isFinal(job.state)) update(job);
  return {
    update,
    end: () => {
      ended = true;
      progress.ended(job.id);
    },
  };
}

function nativeStatus({ native_status: native, state }: Job): string | undefined {
  return native && native.toLowerCase() !== state ? native : undefined;
}

const known = new WeakMap<Ledger, Map<string, Promise<number | undefined>>>();

// A wait for a thousand jobs of one model looks once.
function usual(ledger: Ledger, job: Job): Promise<number | undefined> {
  const models = known.get(ledger) ?? new Map<string, Promise<number | undefined>>();
  known.set(ledger, models);
  const name = [job.base_url, job.protocol, job.model].join(' ');
  const asked = models.get(name) ?? usualDurationMs(ledger, job).catch(() => undefined);
  models.set(name, asked);
  return asked;
}
