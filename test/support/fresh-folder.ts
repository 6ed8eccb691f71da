import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Creates a folder, which is removed with the suite's temporary folder, and returns its path. */
export function freshFolder(): string {
  return mkdtempSync(join(tmpdir(), 'mgw-test-'));
}
