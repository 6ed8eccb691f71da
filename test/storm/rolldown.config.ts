import { defineConfig } from 'rolldown';

/** Builds the storm and its worker, since there is nothing here that runs TypeScript. */
export default defineConfig({
  input: { main: 'test/storm/main.ts', worker: 'test/storm/worker.ts' },
  platform: 'node',
  external: [/^node:/],
  resolve: { conditionNames: ['node', 'import', 'default'] },
  output: { dir: 'node_modules/.cache/mgw-storm', format: 'esm' },
});
