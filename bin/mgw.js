#!/usr/bin/env node
'use strict';

// The version is answered here: it is what scripts ask most often, and it needs nothing else of mgw.
const { version } = require('../package.json');
const [, , first = '', ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) process.stdout.write(`${version}\n`);
else {
  // Node 20 optimises undici's parsers, which are WebAssembly, for longer than a short command runs. Later versions optimise
  // them only if they are used often. Set the flag before anything is compiled: V8's code cache depends on its flags.
  if (process.versions.node.startsWith('20.')) require('node:v8').setFlagsFromString('--liftoff-only');
  const { join } = require('node:path');
  require('./load.js').start(join(__dirname, '..', 'dist'), version);
}
