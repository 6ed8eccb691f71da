#!/usr/bin/env node
'use strict';

// Scripts ask for the version most often, and it needs nothing else of mgw.
const { version } = require('../package.json');
const [, , first = '', ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) {
  process.stdout.on('error', () => {
    process.exitCode = 10;
    process.stderr.write('mgw: Cannot write standard output.\n');
  });
  process.stdout.write(`${version}\n`);
} else {
  const { Buffer } = require('node:buffer');
  const { join } = require('node:path');
  const { loader, openCache } = require('./load.js');
  const use = /^[a-z]{1,12}$/.test(first) ? first : 'any';
  // Node 20 optimises undici's parser, which is WebAssembly, for longer than a short command runs. Later versions of Node do so only
  // if it is used much. The flag is set before anything is compiled, since V8 accepts cached code only under the same flags.
  // `mgw --help` uses no parser, and is spared the loading of node:v8.
  if (use !== 'any' && process.versions.node.startsWith('20.'))
    require('node:v8').setFlagsFromString('--liftoff-only');
  // The single executable carries the build as its assets.
  const sea = process.getBuiltinModule?.('node:sea');
  const { load, keep } = sea?.isSea()
    ? loader('dist', openCache(version), use, (file) => Buffer.from(sea.getRawAsset(file)))
    : loader(join(__dirname, '..', 'dist'), openCache(version), use);
  const { main } = load('mgw.cjs');
  // Node exits if nothing is left to wait for. Without an outcome, that must not look like success.
  let exitCode = 1;
  process.on('exit', () => {
    process.exitCode = exitCode;
    // Exit 2 may mean that the word is no command, which needs no cache of its own.
    if (exitCode !== 2) keep();
  });
  void main(process.argv.slice(2)).then((code) => {
    exitCode = code;
    // Open connections and the heap need no clean-up, but all output must be written.
    const isOut = process.stdout.writableLength === 0 && process.stderr.writableLength === 0;
    // eslint-disable-next-line no-restricted-properties
    if (isOut) process.exit();
  });
}
