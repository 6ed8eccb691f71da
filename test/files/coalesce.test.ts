import { expect, it } from 'vitest';
import { coalesce } from '../../src/files/make-folder.ts';

interface Run {
  end: () => void;
  fail: (error: Error) => void;
}

it('coalesce performs one run for all calls made during the previous run, and returns the outcome to each caller', async () => {
  const runs: Run[] = [];
  const ask = coalesce(() => new Promise<void>((end, fail) => runs.push({ end, fail })));
  const first = ask();
  await expect.poll(() => runs).toHaveLength(1);
  const meanwhile = [ask(), ask()];
  expect(runs).toHaveLength(1);
  runs[0]?.end();
  await first;
  await expect.poll(() => runs).toHaveLength(2);
  const late = ask();
  runs[1]?.fail(new Error('disk full'));
  for (const each of meanwhile) await expect(each).rejects.toThrow('disk full');
  await expect.poll(() => runs).toHaveLength(3);
  runs[2]?.end();
  await late;
  expect(runs).toHaveLength(3);
});
