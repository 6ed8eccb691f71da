import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { checkUnwritten } from '../../../src/cli/doctor/local.ts';
import { UnwrittenEvents } from '../../../src/ledger/kept-facts.ts';

it("mgw doctor lists events that have not been written to a shared ledger's database", async () => {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-unwritten-'));
  try {
    expect(checkUnwritten(folder)).toBeUndefined();
    for (const ledger of ['one', 'other'])
      await new UnwrittenEvents(folder, ledger).keep({ job: 'job_1', uid: 'u', line: '{}' });
    expect(checkUnwritten(folder)).toMatchObject({
      status: 'warn',
      detail: expect.stringMatching(/^2 events are in .*, not yet in the database$/) as string,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
