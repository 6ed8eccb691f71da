import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A new folder; the suite's temporary folder is removed as a whole. */
export function freshFolder(): string {
  return mkdtempSync(join(tmpdir(), 'mgw-test-'));
}
