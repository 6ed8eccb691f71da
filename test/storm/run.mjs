// Bundles the command line and the storm, because no TypeScript runner is installed, and runs the storm.
import { build } from 'rolldown';
import builds from '../../scripts/build/rolldown.config.mjs';

const [commandLine] = builds;
const folder = new URL('../../node_modules/.cache/mgw-storm/', import.meta.url);
await build({ ...commandLine, logLevel: 'warn' });
const kind = ['fleet', 'agents'].find((each) => process.argv.includes(`--${each}`));
const storm = {
  main: 'test/storm/main.ts',
  worker: 'test/storm/worker.ts',
  recorder: 'test/storm/recorder.ts',
};
await build({
  input: kind === undefined ? storm : { [kind]: `test/storm/${kind}.ts` },
  platform: 'node',
  external: [/^node:/, /^pg/, /^@modelcontextprotocol/],
  resolve: commandLine.resolve,
  output: { dir: folder.pathname, format: 'esm' },
  logLevel: 'silent',
});
await import(new URL(`${kind ?? 'main'}.js`, folder).href);
