import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const root = new URL('../../', import.meta.url);

/** The test files for each promise in docs/security.md, by the beginning of the promise. */
const tests: Record<string, readonly string[]> = {
  'The key is never on a command line': ['cli/commands/auth.test.ts', 'security/key.test.ts'],
  'The key is never in output, logs or records': [
    'redact.test.ts',
    'security/key.test.ts',
    'faults/invariants.ts',
    'cli/responses.test.ts',
  ],
  'The key in use is not recorded': ['security/foreign-data.test.ts'],
  'The key goes to the base URL only': [
    'http/trust.test.ts',
    'cli/protocol-a.test.ts',
    'cli/protocol-b.test.ts',
  ],
  'A submission is never redirected': ['faults/submission.test.ts'],
  'Files that you share contain no signed URL': ['security/foreign-data.test.ts'],
  'TLS is verified': ['http/connections.test.ts'],
  'A response cannot make mgw connect to private networks': [
    'http/trust.test.ts',
    'http/reach.test.ts',
    'http/connections.test.ts',
  ],
  'A web page cannot reach the sandbox': ['sandbox/server.test.ts'],
  'The sandbox never uses a real gateway': ['cli/sandbox.test.ts', 'security/foreign-data.test.ts'],
  'Files belong to their owner': [
    'ledger/file-ledger.test.ts',
    'config/read.test.ts',
    'security/files.test.ts',
  ],
  'mgw loads only compiled code that it wrote': ['start.test.ts'],
  'The server cannot choose a file name': ['files/publish.test.ts', 'faults/server-text.test.ts'],
  'Memory is bounded': ['http/client.test.ts', 'media/media-spool.test.ts', 'responses/read-stream.test.ts'],
  'Input cannot cause prototype pollution': [
    'json.test.ts',
    'protocols/compose.test.ts',
    'security/pollution.test.ts',
  ],
  'Nothing runs at installation': ['package.test.ts', 'security/supply.test.ts'],
  'A manifest cannot read files outside the allowed folders': ['batch/row-files.test.ts'],
  'A batch cannot write outside the allowed folders': ['batch/run.test.ts', 'batch/plan.test.ts'],
  'The size of a manifest is limited': [
    'batch/manifest/spreadsheet.test.ts',
    'batch/manifest/manifest.test.ts',
  ],
  'An import cannot refer to files outside the current folder': ['security/foreign-data.test.ts'],
  'A gallery shows only what mgw wrote': ['security/foreign-data.test.ts'],
  'A queued row cannot read a file': ['batch/fleet/worker.test.ts'],
  'A queued row cannot write a file elsewhere': ['batch/fleet/worker.test.ts'],
  'A row goes only to the gateway it was enqueued for': ['batch/fleet/row-queue.test.ts'],
  'TLS to the database is verified': ['ledger/postgres/connection.test.ts'],
  "No other role's code runs as mgw's role": ['ledger/postgres/examine.test.ts'],
  'A server or a file cannot control the terminal': [
    'printable.test.ts',
    'security/text.test.ts',
    'faults/server-text.test.ts',
    'cli/workflow.test.ts',
    'cli/api.test.ts',
  ],
  "Only mgw can send commands to a workflow's runner": ['cli/workflow.test.ts'],
  'A spreadsheet does not run a cell of `spend --csv`': ['security/foreign-data.test.ts'],
};

const promises = readFileSync(new URL('docs/security.md', root), 'utf8')
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| promise'))
  .map((line) => line.slice(2, line.indexOf(' |', 2)));

describe('docs/security.md', () => {
  it('has a test for each promise', () => {
    expect(promises.length).toBeGreaterThan(25);
    const isTested = (promise: string): boolean =>
      Object.keys(tests).some((words) => promise.startsWith(words));
    expect(promises.filter((promise) => !isTested(promise))).toEqual([]);
  });

  it.each(Object.entries(tests))('contains the promise: %s', (words, paths) => {
    expect(promises.filter((promise) => promise.startsWith(words))).toHaveLength(1);
    for (const path of paths) expect(existsSync(new URL(`test/${path}`, root)), path).toBe(true);
  });
});
