import { closeSync, existsSync, readdirSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { deliver, type DeliveryOptions } from '../../src/flows/deliver.ts';
import { localPath } from '../../src/flows/object-output.ts';
import type { Job, JobEvent } from '../../src/job.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { identityOf, lockOutput } from '../../src/jobs/lock-output.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Protocol, QueryVerdict } from '../../src/protocols/protocol.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { leaseOf } from '../support/lease.ts';
import { freshFolder } from '../support/servers.ts';
import { countingClient, flowDeps, jobWith } from './flow-deps.ts';

const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const failedEvent: JobEvent = { type: 'finished', state: 'failed', native_status: '' };
const seen = (state: 'running' | 'succeeded' | 'failed', hasFile = false): QueryVerdict =>
  ({
    ...{ kind: 'observation', state, nativeStatus: state },
    results: hasFile ? [{ sources: [{ kind: 'url', url: 'https://files.example/1.mp4' }] }] : [],
  }) as unknown as QueryVerdict;

interface Ran {
  error?: { exitCode?: number; charged?: string; next?: string[]; job?: Job };
  files?: unknown[];
  /** The calls of the caller's callbacks, in order. */
  notes: string[];
  callCount: number;
  job: Job;
}

async function run(
  wanted: Partial<DeliveryOptions>,
  verdict: QueryVerdict,
  {
    events = [accepted],
    later = [] as JobEvent[],
    isResumed = true,
    soft = false,
    handles = true,
    leftover = '',
    stored = '',
    isUploading = false,
  } = {},
): Promise<Ran> {
  const { client, callCount } = countingClient();
  const refused = new Error('no handle');
  const protocol: Protocol = {
    ...{ ...c, readQuery: () => verdict },
    ...(!handles && {
      query: () => {
        throw refused;
      },
    }),
  };
  const signal = soft ? AbortSignal.abort('SIGINT') : new AbortController().signal;
  const store: Partial<ObjectStore> = { has: (url) => Promise.resolve(url === stored) };
  const deps = await flowDeps(freshFolder(), {
    ...{ client, signals: { soft: signal, hard: signal } },
    ...(stored !== '' && { objects: () => Promise.resolve(store as ObjectStore) }),
  });
  const job = await jobWith(deps.ledger, 'c', ...events);
  for (const event of later) await deps.ledger.append(job.id, event);
  if (leftover !== '') {
    const lock = await lockOutput(leftover, deps, {
      identity: identityOf(job, 0),
      deadline: { remainingMs: () => 60_000 },
    });
    const { file } = await lock.openPart();
    writeSync(file, 'half');
    closeSync(file);
    await lock.note({ durable: 4 });
    lock.release();
  }
  if (isUploading) {
    const request = { identity: job.id, deadline: { remainingMs: () => 60_000 } };
    const otherProcess = { ...deps, lease: leaseOf(currentOwner()) };
    await lockOutput(await localPath(job.id, deps), otherProcess, request);
  }
  const notes: string[] = [];
  const hooks = {
    isResumed,
    onAccepted: (_: Job, resumed: boolean) => void notes.push(`accepted ${resumed}`),
    onUpdate: (last: Job) => void notes.push(last.state),
    onEnd: () => void notes.push('end'),
  };
  const options: DeliveryOptions = {
    ask: 'finish',
    force: false,
    deadline: { remainingMs: () => 60_000 },
    ...wanted,
  };
  try {
    return { files: await deliver(job, protocol, options, deps, hooks), notes, callCount: callCount(), job };
  } catch (error) {
    return { error: error as Ran['error'] & object, notes, callCount: callCount(), job };
  }
}

describe('an accepted job', () => {
  it('is not awaited if the caller requested only its acceptance', async () => {
    expect(await run({ ask: 'accept' }, seen('running'))).toMatchObject({
      files: [],
      callCount: 0,
      notes: ['accepted true', 'end'],
    });
    const stopped = await run({ ask: 'accept' }, seen('running'), { soft: true, isResumed: false });
    expect(stopped).toMatchObject({
      error: { exitCode: 130, charged: 'yes' },
      notes: ['accepted false', 'end'],
    });
  });

  it('is awaited until the job ends', async () => {
    const ended = await run({}, seen('succeeded', true));
    expect(ended).toMatchObject({ files: [], callCount: 1, notes: ['accepted true', 'succeeded', 'end'] });
    const success = (results: number): JobEvent => ({ ...failedEvent, state: 'succeeded', results });
    expect((await run({}, seen('succeeded', true), { events: [accepted, success(1)] })).callCount).toBe(0);
    // A recorded success without a result is queried again.
    expect((await run({}, seen('succeeded', true), { events: [accepted, success(0)] })).callCount).toBe(1);
    expect(await run({ deadline: { remainingMs: () => 0 } }, seen('running'))).toMatchObject({
      error: { exitCode: 8 },
    });
  });

  it('does not refuse its output if another process has saved it since the job was read', async () => {
    const path = join(freshFolder(), 'boat.mp4');
    writeFileSync(path, '');
    const target = { kind: 'file', path } as const;
    const deliveryOptions: Partial<DeliveryOptions> = { target, deadline: { remainingMs: () => 0 } };
    expect((await run(deliveryOptions, seen('running'))).error).toMatchObject({
      code: 'output_exists',
      charged: 'yes',
    });
    const finished: JobEvent = { ...failedEvent, state: 'succeeded', results: 1 };
    expect((await run(deliveryOptions, seen('running'), { later: [finished] })).error).toMatchObject({
      exitCode: 8,
    });
  });

  it('ends the run with exit 5 if it fails, and its partial file is removed', async () => {
    const folder = freshFolder();
    const target = { kind: 'file', path: join(folder, 'a.mp4') } as const;
    const recorded = await run({ target }, seen('running'), { events: [accepted, failedEvent] });
    expect(recorded).toMatchObject({ error: { exitCode: 5 }, callCount: 0 });
    const leftover = target.path;
    expect(await run({ target }, seen('failed'), { leftover })).toMatchObject({
      error: { exitCode: 5, job: { state: 'failed' } },
      callCount: 1,
    });
    expect(readdirSync(folder)).toEqual([]);
  });

  it('ends the run with exit 5 if it fails, even if the output is standard output', async () => {
    const { error, job } = await run({ ask: 'file', target: { kind: 'stdout' } }, seen('failed'));
    expect(error).toMatchObject({ exitCode: 5, next: ['mgw', 'jobs', 'show', job.id] });
  });

  it('keeps its partial file for the next run if a run is interrupted', async () => {
    const folder = freshFolder();
    const leftover = join(folder, 'a.mp4');
    const target = { kind: 'file', path: leftover } as const;
    const stopped = await run({ ask: 'accept', target }, seen('running'), { leftover, soft: true });
    expect(stopped.error).toMatchObject({ exitCode: 130 });
    expect(readdirSync(folder)).toEqual(['a.mp4.part', 'a.mp4.part.json']);
  });

  it('does not replace an existing output, and the error suggests the command that saves the video elsewhere', async () => {
    const path = join(freshFolder(), 'a.mp4');
    writeFileSync(path, 'mine');
    const { error, job } = await run(
      { ask: 'file', target: { kind: 'file', path } },
      seen('succeeded', true),
    );
    expect(error?.next).toEqual([
      'mgw',
      'video',
      'c',
      'fetch',
      job.id,
      '-o',
      path.replace('a.mp4', 'a-2.mp4'),
    ]);
    expect(existsSync(path)).toBe(true);
    expect(error?.job?.handle).toBe('task_1');
  });

  it('is neither queried nor fetched if its result is in the store', async () => {
    const stored = 's3://m/a.mp4';
    const file = { path: stored, bytes: 1, sha256: 'a'.repeat(64) };
    const success: JobEvent = { ...failedEvent, state: 'succeeded', results: 1 };
    const events: JobEvent[] = [accepted, success, { type: 'file', file }];
    const target = { kind: 'file', path: stored } as const;
    const deliveryOptions = { ask: 'file', target, deadline: { remainingMs: () => 0 } } as const;
    const ended = await run(deliveryOptions, seen('running'), { events, stored });
    expect(ended).toMatchObject({ files: [file], callCount: 0, notes: [] });
  });

  it('whose result will be an object is awaited even if another process is saving its objects', async () => {
    const target = { kind: 'file', path: 's3://m/a.mp4' } as const;
    const deliveryOptions = { ask: 'file', target, deadline: { remainingMs: () => 0 } } as const;
    const ended = await run(deliveryOptions, seen('running'), { isUploading: true });
    expect(ended).toMatchObject({
      error: { exitCode: 8 },
      callCount: 1,
      notes: ['accepted true', 'running', 'end'],
    });
    // The deadline ends the wait for the lock.
    expect(await run(deliveryOptions, seen('succeeded', true), { isUploading: true })).toMatchObject({
      error: { exitCode: 8, message: expect.stringContaining('has succeeded') as string },
      notes: ['accepted true', 'succeeded', 'end'],
    });
  });

  it('is refused if its handle cannot be queried', async () => {
    expect((await run({ ask: 'accept' }, seen('running'), { handles: false })).error).toMatchObject({
      message: 'no handle',
    });
    const events: JobEvent[] = [{ type: 'accepted', handle: '../task_1' }];
    const { error, job } = await run({ ask: 'accept' }, seen('running'), { events });
    expect(error).toMatchObject({ charged: 'yes', next: ['mgw', 'jobs', 'show', job.id] });
  });
});
