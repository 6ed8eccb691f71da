import { expect, it } from 'vitest';
import { queueUpdater } from '../../../src/batch/fleet/enqueue.ts';
import type { Query } from '../../../src/batch/fleet/fleet-state.ts';
import type { PlanDeps } from '../../../src/batch/plan.ts';
import type { NamedRow } from '../../../src/batch/planned-row.ts';
import { MgwError } from '../../../src/errors.ts';

const deps = { gateway: 'http://here', redact: (text: string) => text } as unknown as PlanDeps;
const queued = { gateway: 'http://HERE' };

function planned(prompt: string): NamedRow {
  const body = { model: 'm', prompt };
  const row = { index: 1, line: 2, tags: [], set: [], flags: {} };
  return { id: 'a', row, work: { protocol: { name: 'c' }, body, userBody: body } } as unknown as NamedRow;
}

/** Updates a batch row in a queue that answers each statement with `answer`. Returns the statements and the notes. */
async function update(
  prompt: string,
  answer: (sql: string) => Record<string, unknown>[],
): Promise<{ statements: string[]; notes: string[] }> {
  const statements: string[] = [];
  const notes: string[] = [];
  const query = ((sql: string) => {
    statements.push(sql.split(' ').slice(0, 4).join(' '));
    return Promise.resolve().then(() => answer(sql));
  }) as Query;
  const updater = await queueUpdater('clips', deps, query, (text) => notes.push(text));
  await updater?.(planned(prompt));
  return { statements, notes };
}

const large = 'x'.repeat(9 * 2 ** 20);

it('a changed row that is too large for the queue is not updated there, and a note is printed', async () => {
  const { statements, notes } = await update(large, () => [queued]);
  expect(statements.filter((sql) => sql.startsWith('update'))).toEqual([]);
  expect(notes).toEqual([
    expect.stringContaining("at most 8 MiB. Use URLs instead. The queue keeps the row's earlier content"),
  ]);
});

it('no note about a changed row that is too large for the queue is printed if the row is not in the queue', async () => {
  const { notes } = await update(large, (sql) => (sql.includes('{batches}') ? [queued] : []));
  expect(notes).toEqual([]);
});

it('a database error during an update is thrown, so the row is not paid for', async () => {
  const error = new MgwError('unreachable', 'The ledger does not respond.');
  const answer = (sql: string): Record<string, unknown>[] => {
    if (sql.startsWith('update')) throw error;
    return [queued];
  };
  await expect(update('a paper boat', answer)).rejects.toBe(error);
});

it('a row is updated in the queue only if its batch was enqueued for the same gateway, however its address is spelled', async () => {
  const isUpdated = async (...found: object[]): Promise<boolean> => {
    const { statements } = await update('a paper boat', () => found as Record<string, unknown>[]);
    return statements.some((sql) => sql.startsWith('update'));
  };
  expect(await isUpdated(queued)).toBe(true);
  expect(await isUpdated({ gateway: 'http://there' })).toBe(false);
  expect(await isUpdated()).toBe(false);
});
