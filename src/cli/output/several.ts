import { errorView, type Outcome } from './outcome.ts';
import type { Progress } from './progress.ts';
import { exitCodes } from '../../errors.ts';
import type { JobFile } from '../../job.ts';

// The gateway is spared, and so are the files that may be open.
const maxAtOnce = 8;

/**
 * The outcome of a command that takes several REFs: a single one as it is, several in their
 * order, with exit 11 if some are not ok (design 2).
 */
export async function severalOutcomes(
  refs: readonly string[],
  one: (ref: string) => Promise<Outcome>,
  progress: Progress,
  atOnce = maxAtOnce,
): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  // One iterator for all workers: each takes the next ref, however many there are.
  const left = refs.entries();
  const work = async (): Promise<void> => {
    for (const [index, ref] of left) outcomes[index] = await one(ref);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, refs.length) }, work));
  const [first, ...others] = outcomes;
  if (first !== undefined && others.length === 0) return first;
  for (const [index, { error }] of outcomes.entries())
    if (error !== undefined) progress.note(`${refs[index] ?? ''}: ${error.message}`);
  return joined(outcomes);
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
