#!/usr/bin/env node
'use strict';

// The version is answered here: it is what scripts ask most often, and it needs nothing else of mgw.
const [, , first, ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) {
  const { version } = require('../package.json');
  process.stdout.write(`${version}\n`);
} else {
  const { main } = require('../dist/mgw.cjs');
  // Where nothing is left to wait for, Node ends: without an outcome that must not look like success.
  let exitCode = 1;
  process.on('exit', () => {
    process.exitCode = exitCode;
  });
  void main(process.argv.slice(2)).then((code) => {
    exitCode = code;
  });
}
