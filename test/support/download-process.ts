// A process of its own that downloads and publishes one file; bundled and started by download/process.test.ts.
import { deadlineIn, systemClock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { bearer } from '../../src/exchange.ts';
import { download } from '../../src/http/download.ts';
import { publish } from '../../src/http/publish.ts';

const [url = '', target = '', baseUrl = '', key = ''] = process.argv.slice(2);

async function run(): Promise<object> {
  const outcome = await download({ url, key: 'own-site', identity: 'job 0' }, `${target}.part`, {
    gateway: { baseUrl: new URL(baseUrl), key, auth: bearer, trustedOrigins: [] },
    claimant: { owner: { pid: process.pid, start: '1', host: 'here' }, isAlive },
    clock: systemClock,
    deadline: deadlineIn(600_000, systemClock),
    retries: 0,
  });
  if (outcome.kind === 'done') await publish(outcome.part, target, { force: false });
  return outcome;
}

function isAlive({ pid }: { pid: number }): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

function told(error: unknown): object {
  if (!(error instanceof MgwError)) return { message: String(error) };
  return { code: error.code, exitCode: error.exitCode, message: error.message };
}

console.log(JSON.stringify(await run().catch(told)));
