import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Running } from '../../support/cli.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { hasPostgres, PostgresServer } from '../../support/postgres.ts';
import { startBatchGateway, type BatchGateway } from '../gateway.ts';
import { openDatabase } from './database.ts';
import { Machines, read } from './machines.ts';

const leaseMs = 1000;
const sending = /"type":"sending"/;

describe.skipIf(!hasPostgres)('a runner that is stopped past the end of its lease', () => {
  let server: PostgresServer;
  let name: string;
  let gateway: BatchGateway;
  let machines: Machines;
  let proxy: CuttingProxy;
  let stopped: Running;
  let file: string;
  beforeAll(async () => (server = await PostgresServer.open()));
  afterAll(() => server.close());
  beforeEach(async () => {
    name = await server.database();
    await openDatabase(server.url(name), true);
    gateway = await startBatchGateway();
    proxy = await CuttingProxy.open(server.port);
    machines = new Machines(gateway.url, `${server.url(name)}?lease=${leaseMs}ms`);
    file = machines.manifest(1);
  });

  function args(): string[] {
    return ['batch', 'run', file, ...machines.output, '--poll-interval', '10ms', '--timeout', '20s'];
  }

  function start(): void {
    const state = `${server.url(name, proxy.port)}?lease=${leaseMs}ms`;
    stopped = machines.machine(state).start(args());
  }

  const stop = (): void => void stopped.child.kill('SIGSTOP');

  async function whenItsLeaseIsOver(): Promise<void> {
    const alive = 'select count(*) from mgw.leases where until > clock_timestamp()';
    await expect.poll(() => server.query(alive, name), { timeout: 10_000 }).toBe('0');
  }

  interface Other {
    code: number;
    state: string;
  }

  // Another machine goes on with the row, while the first stands still.
  async function otherGoesOn(): Promise<Other> {
    await whenItsLeaseIsOver();
    const { code, view } = await read(machines.machine(), ...args());
    const states = Object.entries((view['batch'] as { states: Record<string, number> }).states);
    return { code, state: states.find(([, count]) => count > 0)?.[0] ?? '' };
  }

  async function wakes(): Promise<void> {
    stopped.child.kill('SIGCONT');
    await stopped.result;
  }

  const output = (): string => join(machines.shared, 'out', 'row-0.mp4');

  function versionOfOutput(): string {
    const { ino, mtimeMs } = statSync(output());
    return `${ino} ${mtimeMs}`;
  }

  it('before "sending" is recorded pays nothing when it wakes', async () => {
    const isStopped = new Promise<void>((resolve) =>
      proxy.before(sending, () => {
        stop();
        proxy.hold();
        resolve();
      }),
    );
    start();
    await isStopped;
    expect(await otherGoesOn()).toEqual({ code: 0, state: 'done' });
    const version = versionOfOutput();
    proxy.up();
    await wakes();
    expect(gateway.charges.get('prompt 0')).toBe(1);
    expect(gateway.posts()).toHaveLength(1);
    expect(versionOfOutput()).toBe(version);
  });

  it('after "sending" is recorded pays nothing when it wakes, nor does anybody else', async () => {
    const isStopped = new Promise<void>((resolve) =>
      proxy.before(sending, () => {
        stop();
        resolve();
      }),
    );
    start();
    await isStopped;
    expect(await otherGoesOn()).toEqual({ code: 11, state: 'unknown' });
    await wakes();
    expect(gateway.posts()).toHaveLength(0);
  });

  it('before the answer to its submission is not paid for again', async () => {
    let answer = (): void => undefined;
    const until = new Promise<void>((resolve) => (answer = resolve));
    const isStopped = new Promise<void>((resolve) => {
      gateway.judge = () => {
        stop();
        resolve();
        return { kind: 'wait', until };
      };
    });
    start();
    await isStopped;
    expect(await otherGoesOn()).toEqual({ code: 11, state: 'unknown' });
    answer();
    await wakes();
    expect(gateway.posts()).toHaveLength(1);
  });

  it('while it waits leaves the file to whoever went on', async () => {
    const isStopped = new Promise<void>((resolve) => {
      gateway.onLook = () => {
        gateway.onLook = () => undefined;
        stop();
        resolve();
      };
    });
    start();
    await isStopped;
    expect(await otherGoesOn()).toEqual({ code: 0, state: 'done' });
    const version = versionOfOutput();
    await wakes();
    expect(versionOfOutput()).toBe(version);
    expect(gateway.posts()).toHaveLength(1);
  });

  it('in a download publishes nothing when it wakes', async () => {
    const isStopped = new Promise<void>((resolve) => {
      gateway.onFile = () => {
        gateway.onFile = () => undefined;
        stop();
        resolve();
      };
    });
    start();
    await isStopped;
    expect(await otherGoesOn()).toEqual({ code: 0, state: 'done' });
    const version = versionOfOutput();
    await wakes();
    expect(versionOfOutput()).toBe(version);
    expect(existsSync(output()) && readFileSync(output()).equals(gateway.video)).toBe(true);
    expect(gateway.posts()).toHaveLength(1);
  });
});
