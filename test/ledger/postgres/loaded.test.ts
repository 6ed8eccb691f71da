import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { newUser } from '../../support/cli.ts';
import { closedPort, freshFolder } from '../../support/servers.ts';

/** Whether the command `args` loads the PostgreSQL client. */
async function loadsClient(args: string[], env: NodeJS.ProcessEnv = {}): Promise<boolean> {
  const folder = freshFolder();
  const [trace, list] = [join(folder, 'trace.cjs'), join(folder, 'list')];
  writeFileSync(list, '');
  writeFileSync(
    trace,
    `const fs = require('fs');
    const read = fs.readFileSync;
    fs.readFileSync = (file, ...more) => {
      if (String(file).endsWith('.cjs')) fs.appendFileSync(${JSON.stringify(list)}, file + '\\n');
      return read(file, ...more);
    };`,
  );
  await newUser(undefined, { NODE_OPTIONS: `--require ${trace}`, ...env }).run(args);
  return readFileSync(list, 'utf8')
    .split('\n')
    .filter(Boolean)
    .some((file) => readFileSync(file, 'utf8').includes('SCRAM-SHA-256'));
}

it('only a command with a shared ledger loads the PostgreSQL modules', async () => {
  expect(await loadsClient(['jobs', 'ls'])).toBe(false);
  const state = `postgres://mgw@127.0.0.1:${await closedPort()}/mgw?connect_timeout=1`;
  expect(await loadsClient(['jobs', 'ls'], { MGW_STATE: state })).toBe(true);
});
