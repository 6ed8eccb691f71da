import { createHash } from 'node:crypto';
import { closeSync, existsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import { acquireOutputLock } from '../../src/files/output-lock.ts';
import { publish } from '../../src/files/publish.ts';
import { deadlineIn, systemClock } from '../../src/clock.ts';
import type { Lease } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { depsFor, run } from './harness.ts';

const lost = (): never => {
  throw new MgwError('unreachable', 'stopped for too long', { retry: 'safe' });
};

describe('a process that other processes may have declared dead', () => {
  it('sends nothing, and records that the attempt was not sent', async () => {
    let posts = 0;
    const server = await httpServer((_, reply) => {
      posts += 1;
      reply.end('{}');
    });
    const deps = await depsFor(server.url, freshFolder());
    // The lease is valid when the payment begins, but ends immediately before the first byte.
    let checkCount = 0;
    const assertLease = (): void => {
      if ((checkCount += 1) > 1) lost();
    };
    const lease: Lease = { owner: currentOwner(), assertLease };
    const ended = await run({ ...deps, retries: 0, lease: () => Promise.resolve(lease) });
    expect(ended).toMatchObject({ exit: 6, job: { state: 'prepared', record: { attempts: 1 } } });
    expect(ended.error?.message).toContain('stopped for too long');
    expect(posts).toBe(0);
    const events = await deps.ledger.events(ended.job?.id ?? '');
    expect(events.map((event) => event?.type)).toEqual([
      'prepared',
      'began',
      'sending',
      'unavailable',
      'detached',
    ]);
  });

  it('publishes nothing', async () => {
    const target = join(freshFolder(), 'boat.mp4');
    const lifeOf = (): Promise<'dead'> => Promise.resolve('dead');
    let isHeld = true;
    const assertLease = (): void => {
      if (!isHeld) lost();
    };
    const output = await acquireOutputLock(target, 'a boat', {
      claimant: { owner: currentOwner(), assertLease, lifeOf },
      clock: systemClock,
      deadline: deadlineIn(1000, systemClock),
      lateError: () => new Error('late'),
      charged: 'no',
    });
    const { path, file } = await output.openPart();
    writeSync(file, 'a boat');
    closeSync(file);
    const part = { path, bytes: 6, sha256: createHash('sha256').update('a boat').digest('hex') };
    isHeld = false;
    await expect(output.note({ durable: 6 })).rejects.toThrow('stopped for too long');
    await expect(publish(part, target, { force: false, assertLease })).rejects.toThrow(
      'stopped for too long',
    );
    expect(existsSync(target)).toBe(false);
    await publish(part, target, { force: false });
    expect(existsSync(target)).toBe(true);
    output.release();
  });
});
