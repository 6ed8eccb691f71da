import { expect, it } from 'vitest';
import type { PlannedRow } from '../../src/batch/planned-row.ts';
import { stateAfter } from '../../src/batch/row-state.ts';
import { MgwError } from '../../src/errors.ts';

const planned = { id: 'a', state: 'new', take: { number: 1, key: 'clips/a' } } as PlannedRow;

it('a row is running if the gateway accepted it but its handle could not be recorded', () => {
  const error = new MgwError('local_io', 'The database does not respond.', { charged: 'yes', handle: 't1' });
  expect(stateAfter({ planned, files: [], isPaid: false, error })).toBe('running');
  expect(
    stateAfter({
      planned,
      files: [],
      isPaid: false,
      error: error.with({ charged: 'no', handle: undefined }),
    }),
  ).toBe('new');
});
