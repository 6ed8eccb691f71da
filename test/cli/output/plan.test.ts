import { expect, it } from 'vitest';
import type { PlannedRow } from '../../../src/batch/planned-row.ts';
import { nextOf } from '../../../src/cli/output/plan.ts';

it('names the command that ends the doubt about a row, with the flags that choose the ledger', () => {
  const row = { id: 'a', state: 'unknown', take: { number: 1, key: 'clips/a', job: { id: 'job_1' } } };
  const doubtful = row as PlannedRow;
  expect(nextOf(doubtful, { sandbox: true })?.join(' ')).toBe('mgw --sandbox jobs resolve job_1');
  expect(nextOf({ ...doubtful, state: 'running' }, {})).toBeUndefined();
});
