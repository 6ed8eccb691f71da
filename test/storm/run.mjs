// Builds the command line and the storm, and lets it blow: there is nothing here that runs TypeScript.
import { build } from 'rolldown';
import builds from '../../rolldown.config.mjs';

const [commandLine] = builds;
const folder = new URL('../../node_modules/.cache/mgw-storm/', import.meta.url);
await build({ ...commandLine, logLevel: 'warn' });
await build({
  input: { main: 'test/storm/main.ts', worker: 'test/storm/worker.ts', recorder: 'test/storm/recorder.ts' },
  platform: 'node',
  external: [/^node:/],
  resolve: commandLine.resolve,
  output: { dir: folder.pathname, format: 'esm' },
  logLevel: 'silent',
});
await import(new URL('main.js', folder).href);
