#!/usr/bin/env node
'use strict';

// The version is answered here: it is what scripts ask most often, and it needs nothing else of mgw.
const { version } = require('../package.json');
const [, , first = '', ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) process.stdout.write(`${version}\n`);
else {
  // Node 20 optimises the parsers of undici, which are WebAssembly, for longer than a short command runs. Later ones do so only
  // once they are used much. Set before anything is compiled: V8 keeps compiled code only for the flags that it started with.
  if (process.versions.node.startsWith('20.')) require('node:v8').setFlagsFromString('--liftoff-only');
  const { Buffer } = require('node:buffer');
  const { join } = require('node:path');
  const { loader, openCache } = require('./load.js');
  const use = /^[a-z]{1,12}$/.test(first) ? first : 'any';
  // The single executable carries the build as its assets.
  const sea = process.getBuiltinModule?.('node:sea');
  const { load, keep } = sea?.isSea()
    ? loader('dist', openCache(version), use, (file) => Buffer.from(sea.getRawAsset(file)))
    : loader(join(__dirname, '..', 'dist'), openCache(version), use);
  const { main } = load('mgw.cjs');
  // Node ends if there is nothing left to wait for. Without an outcome, that must not look like success.
  let exitCode = 1;
  process.on('exit', () => {
    process.exitCode = exitCode;
    // A word that is not a command would be cached as one.
    if (exitCode !== 2) keep();
  });
  void main(process.argv.slice(2)).then((code) => {
    exitCode = code;
    // Kept connections and the heap need not be taken down, but what was written must be out.
    const isOut = process.stdout.writableLength === 0 && process.stderr.writableLength === 0;
    // eslint-disable-next-line no-restricted-properties
    if (isOut) process.exit();
  });
}
