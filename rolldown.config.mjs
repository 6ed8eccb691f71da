import { defineConfig } from 'rolldown';
import { galleryPage } from './rolldown.gallery.mjs';
import { thirdPartyLicences } from './rolldown.licences.mjs';

// commander can start other programs as its subcommands, for which it loads child_process and the network stack
// behind it at every start. mgw has no such command.
const childProcess = "const childProcess = require('node:child_process');";
const withoutChildProcess = {
  name: 'commander-without-child-process',
  transform: {
    filter: { id: /commander\/lib\/command\.js$/ },
    handler(code) {
      if (!code.includes(childProcess))
        throw new Error('commander no longer loads child_process: take this out');
      return code.replace(childProcess, 'let childProcess;');
    },
  },
};

// HTTP/2 is not spoken: undici would load Node's for it at every start.
const withoutHttp2 = {
  name: 'undici-without-http2',
  transform: {
    filter: { id: /undici\/lib\/dispatcher\/client-h2\.js$/ },
    handler: () => "module.exports = () => { throw new Error('HTTP/2 is not spoken'); };",
  },
};

// What is always loaded together is one file; the network stack stays out of what others need.
const always =
  /src\/(cli\/(main|program|context|io|wait-options|output\/(human|json))|session\/(session|settings|places)|http\/(failures|read-bounded))\.ts/;
const network =
  /src\/http\/(client|connections|raw-answer|retry|backoff|deadline|content-encoding|request-head|redacting-client)\.ts/;
const together = {
  groups: [
    { name: 'base', priority: 2, test: always },
    { name: 'gateway', priority: 1, test: network, includeDependenciesRecursively: false },
  ],
};

// One chunk for each command that is loaded on demand: a local command never reads the network stack. CommonJS, since
// Node loads it in half the time: ES modules are read one by one through the thread pool, and each import of a module
// of Node's own reads all of its members, which loads what lies behind them (bench/startup.mjs).
export default defineConfig({
  input: { mgw: 'src/cli/main.ts' },
  platform: 'node',
  preserveEntrySignatures: 'allow-extension',
  external: [/^node:/],
  plugins: [withoutChildProcess, withoutHttp2, galleryPage(), thirdPartyLicences()],
  resolve: { conditionNames: ['node', 'import', 'default'] },
  output: {
    dir: 'dist',
    format: 'cjs',
    strict: true,
    codeSplitting: together,
    dynamicImportInCjs: false,
    entryFileNames: '[name].cjs',
    chunkFileNames: '[name]-[hash].cjs',
    minify: { mangle: false, compress: true },
    sourcemap: false,
  },
});
