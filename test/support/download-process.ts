// A separate process that downloads and publishes one file. download/process.test.ts bundles and starts this program.
import { deadlineIn, systemClock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { bearer } from '../../src/exchange.ts';
import { download } from '../../src/http/download.ts';
import { acquireOutputLock } from '../../src/files/output-lock.ts';
import { publish } from '../../src/files/publish.ts';

const [url = '', target = '', baseUrl = '', key = ''] = process.argv.slice(2);

async function run(): Promise<object> {
  const deadline = deadlineIn(600_000, systemClock);
  const claimant = {
    owner: { pid: process.pid, start: '1', host: 'here' },
    assertLease: () => undefined,
    lifeOf,
  };
  const lateError = (): Error => new Error('late');
  const lock = { claimant, clock: systemClock, deadline, lateError, charged: 'yes' as const };
  const output = await acquireOutputLock(target, 'job 0', lock);
  try {
    const outcome = await download({ url, key: 'own-site' }, output, {
      gateway: { baseUrl: new URL(baseUrl), key, auth: bearer, trustedOrigins: [] },
      clock: systemClock,
      deadline,
      retries: 0,
    });
    if (outcome.kind !== 'done') return outcome;
    await publish(outcome.file, target, { force: false });
    return { kind: outcome.kind, bytes: outcome.file.bytes };
  } finally {
    output.release();
  }
}

function lifeOf({ pid }: { pid: number }): Promise<'alive' | 'dead'> {
  try {
    return Promise.resolve(process.kill(pid, 0) ? 'alive' : 'dead');
  } catch {
    return Promise.resolve('dead');
  }
}

function told(error: unknown): object {
  if (!(error instanceof MgwError)) return { message: String(error) };
  return { code: error.code, exitCode: error.exitCode, message: error.message };
}

console.log(JSON.stringify(await run().catch(told)));
