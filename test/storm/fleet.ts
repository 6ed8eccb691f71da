import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Fleet } from '../batch/fleet/fleet.ts';
import { cleanUp } from '../support/clean-ups.ts';
import { hasPgBouncer, PgBouncer } from '../support/pgbouncer.ts';
import { PostgresServer } from '../support/postgres.ts';

const [, given = '2000'] = /--rows[= ](\d+)/.exec(process.argv.join(' ')) ?? [];
const rows = Number(given);

/**
 * Runs a batch of many rows on a fleet of eight runners, while runners and the server die, runners
 * pause, and connections break.
 */
async function storm(): Promise<boolean> {
  const server = await PostgresServer.open();
  const pool = hasPgBouncer ? await PgBouncer.open(server.port) : undefined;
  try {
    const say = (text: string): void => void process.stdout.write(`${text}\n`);
    const trial = {
      rows,
      runners: 8,
      concurrency: 10,
      every: Math.max(1, Math.floor(rows / 45)),
      maxIdle: '25s',
      say,
    };
    const outcome = await (await Fleet.open(trial, server, pool?.port ?? server.port)).run();
    say(JSON.stringify(outcome, undefined, 2));
    return outcome.paidTwice.length === 0 && outcome.astray.length === 0 && outcome.left.length === 0;
  } finally {
    await cleanUp();
    await pool?.close();
    await server.close();
  }
}

const folder = mkdtempSync(join(tmpdir(), 'mgw-fleet-'));
// The servers run as another user, so this folder must allow them to reach their own folders inside it.
chmodSync(folder, 0o711);
process.env['TMPDIR'] = folder;
process.exitCode = (await storm()) ? 0 : 1;
rmSync(folder, { recursive: true, force: true });
