#!/usr/bin/env node
import { readFileSync } from 'node:fs';

// The version is answered here: it is what scripts ask most often, and it needs nothing else of mgw.
const [, , first, ...rest] = process.argv;
if ((first === '--version' || first === '-V') && rest.length === 0) {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  console.log(version);
} else {
  const { main } = await import('../dist/mgw.js');
  await main(process.argv.slice(2));
}
