import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import type { Batch } from '../../../src/batch/plan.ts';
import type { PlannedRow } from '../../../src/batch/planned-row.ts';
import type { Context } from '../../../src/cli/context.ts';
import { WorkerReport } from '../../../src/cli/output/worker-report.ts';
import { systemClock } from '../../../src/clock.ts';
import { MgwError } from '../../../src/errors.ts';

const stderr = new PassThrough();

// Node 26 returns one chunk per call.
function readAll(stream: PassThrough): string {
  let text = '';
  const next = (): Buffer | null => stream.read() as Buffer | null;
  for (let chunk = next(); chunk !== null; chunk = next()) text += chunk.toString();
  return text;
}

const io = { stdout: new PassThrough(), stderr, env: {} };
const context = {
  io,
  displayOptions: { ...io, quiet: false, color: false, clock: systemClock },
  globals: { json: true },
  clock: systemClock,
  progress: { showNotesOnly: () => undefined, note: () => undefined },
  settings: () => Promise.resolve({ sandbox: { value: true } }),
  redact: (text: string) => text,
} as unknown as Context;

const batch = { name: 'clips' } as Batch;
const work = { protocol: { name: 'c', modelOf: () => 'vendor-h3-mini' }, body: {} };
const planned = {
  ...{ id: 'a', state: 'new', path: 'a.mp4', key: 'clips/a', work },
  ...{ row: { id: 'a', line: 2, tags: [] }, take: { number: 1, key: 'clips/a' } },
} as unknown as PlannedRow;

it("a worker's report counts a row once even if the worker returned the row and claimed it again", async () => {
  const report = await WorkerReport.open(context, {});
  report.began(batch, planned);
  const error = new MgwError('rate_limited', 'Too many requests.', { charged: 'no' });
  await report.ended(batch, { planned, files: [], isPaid: false, error }, 'new', true);
  expect(report.outcome(undefined, undefined)).toMatchObject({
    exitCode: 11,
    json: { worker: { rows: 1, given_back: 1 } },
  });
  report.began(batch, planned);
  await report.ended(batch, { planned, files: [], isPaid: false }, 'done', false);
  const { json, exitCode } = report.outcome(undefined, undefined);
  expect([exitCode, json]).toMatchObject([
    0,
    { worker: { rows: 1, states: { done: 1, new: 0 }, given_back: 0 } },
  ]);
  await report.close();
});

it("a worker's report suggests a command with the worker's output and options, but not with its own --concurrency", async () => {
  const options = { output: 'out/{name}/{id}.{ext}', strict: true, mark: true, concurrency: 3 };
  const report = await WorkerReport.open(context, options);
  const error = new MgwError('task_failed', 'The generation failed.', { charged: 'yes' });
  report.began(batch, planned);
  await report.ended(batch, { planned, files: [], isPaid: true, error }, 'failed', false);
  await report.close();
  expect(readAll(stderr)).toContain(
    "→ mgw batch retry clips -o 'out/{name}/{id}.{ext}' --strict --mark --id a\n",
  );
});

it("each command in a worker's report keeps the flags that choose the gateway and the ledger", async () => {
  const stderr = new PassThrough();
  const displayOptions = { ...context.displayOptions, stderr };
  const globals = { json: true, profile: 'work' };
  const report = await WorkerReport.open({ ...context, displayOptions, globals }, {});
  report.quarantined('clips', 'a');
  const error = new MgwError('not_found', 'No such job.', { next: ['mgw', 'models'] });
  await report.ended(batch, { planned, files: [], isPaid: false, error }, 'failed', false);
  expect(readAll(stderr)).toContain('→ mgw --profile work batch enqueue clips --again\n');
  expect(report.outcome(undefined, undefined).json['rows']).toMatchObject([
    { error: { next: ['mgw', '--profile', 'work', 'models'] } },
  ]);
  await report.close();
});
