'use strict';

// The start script of the single executable (scripts/release/executable.mjs), which carries the build and the
// documentation as assets. The bundler puts package.json and load.js into this file.
const { getRawAsset } = require('node:sea');
const { version } = require('../package.json');
const [, , first = '', ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) process.stdout.write(`${version}\n`);
else require('./load.js').start('mgw', version, (name) => new Uint8Array(getRawAsset(`dist/${name}`)));
