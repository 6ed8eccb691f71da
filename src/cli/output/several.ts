import { errorView, type Outcome } from './outcome.ts';
import type { Progress } from './progress.ts';
import { exitCodes, type MgwError } from '../../errors.ts';
import type { JobFile } from '../../job.ts';
import type { Signals } from '../../payment/pay-once.ts';

// Limits the load on the gateway, and the number of open files.
const maxAtOnce = 8;

/**
 * Returns the outcome of a command that takes several REFs: a single outcome unchanged, several in their order, with
 * exit 11 if some failed (design 2). An interruption is reported once for all of them: exit 130 or 143.
 */
export async function severalOutcomes(
  refs: readonly string[],
  one: (ref: string) => Promise<Outcome>,
  progress: Progress,
  atOnce = maxAtOnce,
): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  // All workers share one iterator, and each takes the next ref.
  const left = refs.entries();
  const work = async (): Promise<void> => {
    for (const [index, ref] of left) outcomes[index] = await one(ref);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, refs.length) }, work));
  const [first, ...others] = outcomes;
  if (first !== undefined && others.length === 0) return first;
  const interrupted = outcomes.flatMap(({ error }) => (error && isInterruption(error) ? [error] : []));
  for (const [index, { error }] of outcomes.entries())
    if (error !== undefined && !interrupted.includes(error))
      progress.note(`${refs[index] ?? ''}: ${error.message}`);
  const whole = joined(outcomes);
  if (interrupted[0] === undefined) return whole;
  return { ...whole, error: inOne(interrupted[0], interrupted), exitCode: interrupted[0].exitCode };
}

/** Whether a signal ended it. */
export function isInterruption({ exitCode }: MgwError): boolean {
  return exitCode === exitCodes.interrupted || exitCode === exitCodes.terminated;
}

// The command of one of them, with the ids of all.
function inOne(first: MgwError, all: readonly MgwError[]): MgwError {
  const ids = all.flatMap(({ job }) => (job === undefined ? [] : [job.id]));
  const at = first.next?.indexOf(first.job?.id ?? '') ?? -1;
  if (all.length === 1 || first.next === undefined || at < 1) return first;
  const next = ['mgw', 'jobs', ...first.next.slice(at - 1, at), ...ids, ...first.next.slice(at + 1)];
  return first.with({ next, job: undefined }, `Interrupted; ${ids.length} jobs go on.`);
}

function joined(outcomes: readonly Outcome[]): Outcome {
  const jobs = outcomes.map(({ json, error }) => ({
    ...(json['job'] as object | undefined),
    ...(error && { outcome: errorView(error) }),
  }));
  const files = outcomes.flatMap(({ json }) => (json['files'] as JobFile[] | undefined) ?? []);
  const isBad = outcomes.some(({ error }) => error !== undefined);
  return {
    json: { jobs, ...(files.length > 0 && { files }) },
    text: outcomes.flatMap(({ text }) => (text ? [text] : [])).join('\n'),
    isRun: true,
    exitCode: isBad ? exitCodes.partial : exitCodes.ok,
    printed: async () => {
      for (const { printed } of outcomes) await printed?.();
    },
  };
}

/**
 * Returns dependencies with their own signals for one of many jobs, since adding or removing a listener takes time for
 * all listeners of a signal.
 */
export function withOwnSignals<Deps extends { signals: Signals }>(deps: Deps): Deps {
  const { soft, hard } = deps.signals;
  return { ...deps, signals: { soft: AbortSignal.any([soft]), hard: AbortSignal.any([hard]) } };
}
