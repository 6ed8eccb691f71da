import { defineConfig } from 'vitest/config';
import { SlowestFirst } from './test/support/slowest-first.ts';

// At each start, Node reads the file that this variable names, which takes longer than the start itself. The build and
// the test processes inherit this environment.
process.env['NODE_EXTRA_CA_CERTS'] = '';

// These tests replace a Node module, which other tests in the same process would get too.
const alone = [
  'test/http/connections.test.ts',
  'test/http/download/part.test.ts',
  'test/files/publish.test.ts',
];

// The machine may be busy, so a test's duration proves nothing.
const common = {
  testTimeout: 120_000,
  hookTimeout: 120_000,
  expect: { poll: { timeout: 60_000 } },
  setupFiles: ['test/support/each-file.ts'],
};

export default defineConfig({
  test: {
    globalSetup: ['test/support/build.ts', 'test/support/temporary.ts'],
    reporters: ['default', './test/support/closing-line.ts'],
    // More than the two cores of the test machine, because most tests wait for processes and sockets.
    maxWorkers: 5,
    sequence: { sequencer: SlowestFirst },
    projects: [
      { test: { ...common, name: 'alone', include: alone } },
      {
        test: { ...common, name: 'shared', include: ['test/**/*.test.ts'], exclude: alone, isolate: false },
      },
    ],
  },
});
