import { defineConfig } from 'vitest/config';

// They replace a module of Node, which whoever shares their process would get as well.
const alone = ['test/http/connect.test.ts', 'test/http/publish.test.ts', 'test/jobs/file-faults.test.ts'];

const limits = { testTimeout: 30_000, hookTimeout: 30_000 };

export default defineConfig({
  test: {
    globalSetup: ['test/support/build.ts', 'test/support/temporary.ts'],
    reporters: ['default', './test/support/closing-line.ts'],
    maxWorkers: 2,
    projects: [
      { test: { ...limits, name: 'alone', include: alone } },
      {
        test: { ...limits, name: 'shared', include: ['test/**/*.test.ts'], exclude: alone, isolate: false },
      },
    ],
  },
});
