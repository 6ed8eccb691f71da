#!/usr/bin/env node
'use strict';

// Scripts and agents request the version and the help most often. Both are known in advance, and need no other code.
const { Buffer } = require('node:buffer');
const { fstatSync, readFileSync, writeSync } = require('node:fs');
const { join } = require('node:path');
const { version } = require('../package.json');
const [, , first = '', ...rest] = process.argv;
// The single executable contains the build as its assets.
const sea = process.getBuiltinModule?.('node:sea');
const asset = sea?.isSea() ? (file) => Buffer.from(sea.getRawAsset(file)) : undefined;
const ready = rest.length === 0 ? knownAnswer(first) : undefined;
const [major, minor] = process.versions.node.split('.').map(Number);
if (ready !== undefined) {
  print(ready);
} else if (major < 20 || (major === 20 && minor < 18)) {
  process.stderr.write(
    `mgw: mgw needs Node 20.18 or newer, but this is Node ${process.versions.node}.\n  Nothing was sent. (exit 2)\n`,
  );
  process.exitCode = 2;
} else {
  const { loader, openCache } = require('./load.js');
  const use = /^[a-z]{1,12}$/.test(first) ? first : 'any';
  // Node 20 optimizes undici's parser, which is WebAssembly, for longer than a short command runs. Later versions of
  // Node do so only if it is used heavily. Set the flag before anything is compiled, because V8 accepts cached code
  // only under the same flags.
  if (process.versions.node.startsWith('20.')) require('node:v8').setFlagsFromString('--liftoff-only');
  const dist = asset ? 'dist' : join(__dirname, '..', 'dist');
  const { load, keep } = loader(dist, openCache(version), use, asset);
  const { main } = load('mgw.cjs');
  // Node exits when it has nothing left to wait for. Without an outcome, that must not look like success.
  let exitCode = 1;
  process.on('exit', () => {
    process.exitCode = exitCode;
    // Exit 2 may mean that the word is not a command, and then it needs no cache of its own.
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

// On a terminal, the help depends on the width and the colours. For all other streams, the build has written it to a
// file. An executable does not have that file: a file of the same name next to it is not mgw's.
function knownAnswer(flag) {
  if (flag === '--version' || flag === '-V') return Buffer.from(`${version}\n`);
  if (asset || flag !== '--help' || fstatSync(1).isCharacterDevice()) return undefined;
  try {
    return readFileSync(join(__dirname, '..', 'dist', 'help.txt'));
  } catch {
    return undefined;
  }
}

// Writes directly, because creating `process.stdout` for a pipe takes longer than everything else here. That stream
// only writes what the system does not accept at once, and reports errors.
function print(bytes) {
  let written = 0;
  try {
    written = writeSync(1, bytes);
  } catch {
    // The stream below reports the same error.
  }
  if (written === bytes.length) return;
  process.stdout.on('error', () => {
    process.exitCode = 10;
    process.stderr.write('mgw: Cannot write standard output.\n');
  });
  process.stdout.write(bytes.subarray(written));
}
