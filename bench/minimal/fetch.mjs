// The minimal command that queries the gateway: the global fetch, on a connection of mgw's undici. mgw needs undici in
// order to pay only once. Like mgw, this program caches compiled code. It has no command line, settings or checks.
//
//   node fetch.mjs URL
import { readdirSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';

const { loader, openCache } = createRequire(import.meta.url)('../../bin/load.js');
if (process.versions.node.startsWith('20.')) setFlagsFromString('--liftoff-only');
const dist = join(import.meta.dirname, '..', '..', 'dist');
const modifiedMs = (name) => statSync(join(dist, name)).mtimeMs;
const [undici] = readdirSync(dist)
  .filter((name) => /^undici-[\w-]+\.cjs$/.test(name))
  .sort((one, other) => modifiedMs(other) - modifiedMs(one));
const { load, keep } = loader(dist, openCache('minimal'), 'minimal');
const { Pool } = Object.values(load(undici)).find((part) => part.Pool !== undefined);
const url = new globalThis.URL(process.argv[2]);
const dispatcher = new Pool(url.origin, { connections: 1 });
const answer = await globalThis.fetch(url, { dispatcher, headers: { authorization: 'Bearer x' } });
console.log(await answer.json());
await dispatcher.close();
keep();
