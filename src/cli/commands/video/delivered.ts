import { toMgwError } from '../../../errors.ts';
import type { Delivered, FlowHooks } from '../../../flows/deliver.ts';
import { withOutput } from '../../../flows/next.ts';
import { isFinal, nativeWord, type Job, type JobFile } from '../../../job.ts';
import { usualDurationMs } from '../../../jobs/newest.ts';
import { jobView } from '../../../jobs/view.ts';
import { printableLine } from '../../../printable.ts';
import type { Context } from '../../context.ts';
import { writeMedia } from '../../io.ts';
import type { Outcome } from '../../output/outcome.ts';
import { currencyOf } from '../../../flows/prices.ts';
import type { BudgetOptions } from '../../options.ts';
import type { OutputOptions } from '../../wait-options.ts';
import { relative, isAbsolute } from 'node:path';
import { expensesOf } from '../../../budget/spend.ts';
import { add, formatDecimal, type Decimal } from '../../../decimal.ts';
import { isObjectUrl } from '../../../store-url.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import { elapsed, size } from '../../output/progress.ts';

/**
 * Runs a flow, and returns its outcome. The delivery is recorded only after the id or path is printed.
 * @param describe returns text to print before the saved paths
 */
export async function deliveredOutcome(
  context: Context,
  options: OutputOptions & BudgetOptions,
  run: () => Promise<Delivered>,
  describe?: (delivered: Delivered) => string,
): Promise<Outcome> {
  const { clock, progress } = context;
  const [startMs, startedAt] = [clock.monotonic(), clock.now()];
  try {
    const done = await run();
    const { job, files, delivered } = done;
    const isStdout = options.output === '-';
    if (files.length > 0 || describe !== undefined) {
      const cost = await costText(await context.ledger(), [job], currencyOf(await context.settings()));
      const isReused = !isStdout && Date.parse(job.fetched_at ?? '') < startedAt;
      const saved = savedText({ files, ms: clock.monotonic() - startMs, cost, isReused });
      const words = [describe?.(done), saved || (cost && `It cost ${cost}.`)];
      progress.note(words.filter((word) => word !== undefined && word !== '').join(' '));
    }
    const isSaved = files.length > 0 || options.output !== undefined;
    const paths = isStdout ? '' : files.map((file) => file.path).join('\n');
    return {
      json: { job: jobView(job), ...(isSaved && { files }) },
      text: isSaved ? paths : job.id,
      onPrinted: delivered,
    };
  } catch (thrown) {
    const error = withOutput(toMgwError(thrown), options);
    const { job, handle } = error;
    // If an accepted task could not be recorded, print its handle on stdout too, because the handle is the only
    // reference to the task.
    const json = { ...(handle !== undefined && { handle }), ...(job && { job: jobView(job) }) };
    return { json, text: handle && printableLine(handle), error };
  }
}

/** Returns the callbacks that show a job while mgw waits for it, and that write media to standard output. */
export function hooksOf(context: Context, { isWaiting = true } = {}): FlowHooks {
  const { progress, io } = context;
  let lastJob: Job | undefined;
  let expectedAt: number | undefined;
  let hasEnded = false;
  const show = (job: Job): void => {
    lastJob = job;
    const { id, state, progress: percent } = job;
    progress.waiting({ id, state, native: nativeWord(job), percent, expectedAt });
  };
  // Runs in the background, because nothing waits for the estimate.
  const estimateEnd = async (job: Job): Promise<void> => {
    const usualMs = await usualDurationMs(await context.ledger(), job);
    const since = Date.parse(job.submitted_at ?? '');
    if (usualMs === undefined || Number.isNaN(since) || hasEnded) return;
    expectedAt = since + usualMs;
    show(lastJob ?? job);
  };
  return {
    onAccepted: (job) => {
      if (!isWaiting || isFinal(job.state)) return;
      estimateEnd(job).catch(() => undefined);
      show(job);
    },
    onUpdate: isWaiting ? show : undefined,
    onEnd: () => {
      hasEnded = true;
      if (lastJob !== undefined) progress.ended(lastJob.id);
    },
    onProgress: (transfer) => progress.downloading(transfer),
    toStdout: (bytes) => writeMedia(io.stdout, bytes),
  };
}

/**
 * Returns the callbacks for a command that submits. In addition to those of {@link hooksOf}, one reports whether the
 * job was submitted now or by an earlier run.
 */
export function submitHooks(context: Context, account: string, options: { isWaiting: boolean }): FlowHooks {
  const hooks = hooksOf(context, options);
  return {
    ...hooks,
    onAccepted: (job, isResumed) => {
      const name = `${job.id} (handle ${job.handle ?? '?'})`;
      // Warns if the job was submitted with a different key. A new key of the same account can access the task, but a
      // key of a different account cannot.
      const hasOtherKey = job.record.account !== '' && job.record.account !== account;
      const keyNote = hasOtherKey ? ' It was submitted with a different API key.' : '';
      context.progress.note(
        isResumed ? `Resuming ${name}; nothing is submitted again.${keyNote}` : `Accepted as ${name}.`,
      );
      hooks.onAccepted?.(job, isResumed);
    },
  };
}

/** The facts that a command's final line reports. */
interface SavedSummary {
  files: readonly JobFile[];
  /** The duration of the command, in ms. */
  ms: number;
  /** The cost as text; '' if it is unknown. */
  cost: string;
  /** Whether the files already existed. */
  isReused?: boolean;
}

/** Describes saved files: the path or the number of files, the size, the duration and, if known, the cost. */
export function savedText({ files, ms, cost, isReused = false }: SavedSummary): string {
  const [only, ...others] = files;
  if (only === undefined) return '';
  const bytes = size(files.reduce((sum, file) => sum + file.bytes, 0));
  const what = others.length > 0 ? `${files.length} files` : nameOf(only.path);
  const price = cost === '' ? '' : `; cost ${cost}`;
  if (isReused) return `${what} (${bytes}) ${others.length > 0 ? 'were' : 'was'} already saved${price}.`;
  return `${only.path === '-' ? 'Wrote' : 'Saved'} ${what} (${bytes}) after ${elapsed(ms)}${price}.`;
}

function nameOf(path: string): string {
  if (path === '-') return 'to standard output';
  if (isObjectUrl(path)) return path;
  const name = relative(process.cwd(), path);
  return name.startsWith('..') || isAbsolute(name) ? path : name;
}

/** Describes the cost of jobs; '' if a price is unknown. */
export async function costText(ledger: Ledger, jobs: readonly Job[], currency: string): Promise<string> {
  let total: Decimal | undefined;
  let isExact = true;
  for (const job of jobs) {
    const expenses = expensesOf(job, await ledger.events(job.id).catch(() => []));
    for (const { amount } of expenses) {
      if (amount === undefined) return '';
      total = total === undefined ? amount : add(total, amount);
    }
    isExact &&= job.cost?.per_10k_characters !== undefined && job.usage !== undefined;
  }
  if (total === undefined) return '';
  return `${isExact ? '' : 'at most '}${formatDecimal(total)} ${currency}`;
}
