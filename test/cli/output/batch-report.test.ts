import { expect, it } from 'vitest';
import type { PlannedRow } from '../../../src/batch/planned-row.ts';
import { BatchReport } from '../../../src/cli/output/batch-report.ts';
import type { Job } from '../../../src/job.ts';

it('a batch report counts the cost of a row only if this run paid for the row, not if a concurrent run paid', () => {
  const planned = { id: 'a', row: { line: 2 }, state: 'new', take: { number: 1, key: 'm/a' } };
  const job = { id: 'job_1', handle: 'task-1', cost: { at_most: '5' }, record: {} };
  const end = { planned: planned as PlannedRow, job: job as unknown as Job, files: [] };
  const report = new BatchReport('m.csv', {}, {}, 'credits');
  report.addEnded({ ...end, isPaid: false }, 'done');
  expect(report.money()).toBe('');
  report.addEnded({ ...end, isPaid: true }, 'done');
  expect(report.money()).toBe('at most 5 credits spent');
});
