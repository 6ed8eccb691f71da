import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readExport, type ExportedJob } from '../../../src/cli/commands/jobs/exported-jobs.ts';
import { userHere } from '../../support/one-process.ts';

const mib = 1024 * 1024;

async function jobsIn(...chunks: string[]): Promise<ExportedJob[]> {
  const bytes = chunks.map((chunk) => Buffer.from(chunk));
  const redact = (text: string): string => text.replaceAll('secret', '-');
  const jobs: ExportedJob[] = [];
  for await (const job of readExport(bytes as never, 'jobs.json', redact)) jobs.push(job);
  return jobs;
}

describe('an export', () => {
  it('is read as JSON Lines across chunks, with the number of each line', async () => {
    expect(await jobsIn('{"id":"on', 'e"}\r\n\n{"id":"two"', '}\nno JSON')).toEqual([
      { value: { id: 'one' }, place: 'Line 1' },
      { value: { id: 'two' }, place: 'Line 3' },
      { value: undefined, place: 'Line 4' },
    ]);
  });

  it('is read as one document of several lines', async () => {
    expect(await jobsIn('\n{\n "jobs": [{"id":', '\n"secret"}]\n}\n')).toEqual([
      { value: { id: '-' }, place: 'Job 1 of the JSON document' },
    ]);
    expect(await jobsIn('{\n"jobs": [\n')).toEqual([
      { value: undefined, place: 'The JSON document on line 1' },
    ]);
  });

  it.each([
    ['line', '', 'x'.repeat(mib), 'Line 2 of jobs.json is larger than 64 MiB.'],
    ['document', '{\n', `${' '.repeat(mib)}\n`, 'jobs.json contains a JSON document larger than 64 MiB.'],
  ])('is refused if it has a %s larger than 64 MiB', async (_, start, piece, message) => {
    const chunks = ['{"id":"one"}\n', start, ...Array.from({ length: 65 }, () => piece)];
    await expect(jobsIn(...chunks)).rejects.toThrow(message);
  });
});

it.each([
  ['-', 'Standard input'],
  ['empty.jsonl', 'empty.jsonl'],
])('jobs import %s prints a note if there are no jobs in it', async (file, name) => {
  const user = userHere();
  writeFileSync(join(user.cwd, 'empty.jsonl'), '');
  const run = await user.run(['jobs', 'import', file]);
  expect([run.code, run.stdout]).toEqual([0, '']);
  expect(run.stderr).toMatch(new RegExp(`^(\\S+/)?${name} contains no jobs\\.\n$`));
});
