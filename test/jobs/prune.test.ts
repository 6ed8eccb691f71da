import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Goal, Job, JobEvent, JobKind, RecordedEvent } from '../../src/job.ts';
import { namedJob } from '../../src/jobs/ref.ts';
import { prune, removeJob, type KeepReason, type Obstacle, type PruneResult } from '../../src/jobs/remove.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { newJobId } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { freshFolder } from '../support/servers.ts';
import { deadOwner } from './harness.ts';

const day = 86_400_000;
const now = 100 * day;
const error = { code: 'task_failed', message: 'no' };
const owner = deadOwner();
const goal: Goal = { command: 'submit', ask: 'file', output: '/clips/boat.mp4' };

const sent: JobEvent[] = [
  { type: 'began', run: 'r', owner, ...goal },
  { type: 'sending', attempt: 1, owner },
];
const accepted: JobEvent[] = [...sent, { type: 'accepted', handle: 'task_1' }];
const succeeded: JobEvent[] = [...accepted, { type: 'finished', state: 'succeeded', native_status: '' }];
const delivered: JobEvent[] = [...succeeded, { type: 'delivered', run: 'r' }];
const failed: JobEvent[] = [...accepted, { type: 'finished', state: 'failed', native_status: '', error }];

let folder: string;
let ledger: Ledger;

beforeEach(async () => {
  folder = freshFolder();
  ledger = await openFileLedger(folder, () => now);
});

interface Made {
  key?: string;
  protocol?: JobKind;
  fingerprint?: string;
  variant?: string;
  age?: number;
}

async function make(
  events: readonly (JobEvent | undefined)[],
  { age = 60, protocol = 'c', fingerprint = 'f'.repeat(64), ...more }: Made = {},
): Promise<string> {
  const at = new Date(now - age * day).toISOString();
  const id = newJobId(now - age * day);
  const prepared: JobEvent = { type: 'prepared', protocol, base_url: 'g', fingerprint, account: '', ...more };
  const all = [prepared, ...events].map((event): RecordedEvent | undefined => event && { ...event, at });
  await ledger.create(id, all);
  return id;
}

function pruned(options: { keys?: boolean; dryRun?: boolean; before?: number } = {}): Promise<PruneResult> {
  return prune(ledger, { before: now - 30 * day, keys: false, dryRun: false, ...options }, () =>
    Promise.resolve([]),
  );
}

describe('prune of old jobs', () => {
  it.each<[string, JobEvent[], Made?]>([
    ['a job that succeeded and was delivered', delivered],
    ['a job that failed', failed],
    ['a job that was rejected', [...sent, { type: 'rejected', attempt: 1, error }]],
    ['an imported handle whose task has ended', succeeded.slice(2), { fingerprint: '' }],
    ['speech that was rejected', [...sent, { type: 'rejected', attempt: 1, error }], { protocol: 'tts' }],
  ])('removes %s', async (_, events, made) => {
    const id = await make(events, made);
    if (events.some(({ type }) => type === 'sending')) await ledger.claim(`send.${id}.1`, 'x');
    expect(await pruned()).toMatchObject({ removed: [id] });
    expect(await ledger.read(id)).toBeUndefined();
    expect(await ledger.claimState(id)).toBe('removed');
  });

  it('removes jobs with a key only with --keys, and frees their keys', async () => {
    const id = await make(delivered, { key: 'boat-1' });
    expect(await namedJob(ledger, 'boat-1')).toMatchObject({ id });
    expect(await pruned()).toMatchObject({ removed: [], kept: { key: 1 } });
    expect(await pruned({ keys: true })).toMatchObject({ removed: [id] });
    expect(await namedJob(ledger, 'boat-1')).toBeUndefined();
  });

  it('removes no job in a dry run', async () => {
    const id = await make(delivered);
    expect(await pruned({ dryRun: true })).toMatchObject({ removed: [id] });
    expect(await ledger.read(id)).toBeDefined();
  });
});

describe('prune, with or without --keys,', () => {
  it.each<[string, KeepReason, (JobEvent | undefined)[], Made?]>([
    ['a job that is not old enough', 'newer', delivered, { age: 29 }],
    ['a job that is as old as the limit', 'newer', delivered, { age: 30 }],
    ['a job that was never sent', 'open', []],
    ['a job that is in doubt', 'open', [...sent, { type: 'unknown', attempt: 1, error }]],
    ['a job that is being sent', 'open', sent],
    ['a job that is in progress', 'open', accepted],
    ['a job with a damaged record', 'open', [...delivered, undefined]],
    ['a job that was not delivered', 'undelivered', succeeded],
    ['a job that was not delivered and whose record contains no command', 'undelivered', succeeded.slice(1)],
    [
      'a job that was delivered to one of two commands',
      'undelivered',
      [{ type: 'began', run: 'other', owner, ...goal, output: '/clips/other.mp4' }, ...delivered],
    ],
    [
      'a job that a process is using',
      'in_use',
      [...delivered, { type: 'began', run: 's', owner: currentOwner(), ...goal, command: 'fetch' }],
    ],
    [
      'a job that a process on another host may be using',
      'in_use',
      [
        ...delivered,
        {
          type: 'began',
          run: 's',
          owner: { ...owner, pid: 1, host: 'elsewhere' },
          ...goal,
          command: 'fetch',
        },
      ],
    ],
    ['speech that broke off', 'speech', failed, { protocol: 'tts' }],
  ])('keeps %s', async (_, reason, events, made) => {
    const id = await make(events, { key: 'boat-1', ...made });
    for (const dryRun of [true, false]) {
      const { removed, kept } = await pruned({ keys: true, dryRun });
      expect({ removed, [reason]: kept[reason] }).toEqual({ removed: [], [reason]: 1 });
    }
    expect(await ledger.read(id)).toBeDefined();
  });

  it('keeps an old job whose last event is newer than the limit or exactly as old', async () => {
    const id = await make(accepted);
    await ledger.append(id, { type: 'finished', state: 'failed', native_status: '', error });
    for (const before of [now - 30 * day, now])
      expect(await pruned({ keys: true, before })).toMatchObject({ removed: [], kept: { newer: 1 } });
    expect(await pruned({ keys: true, before: now + 1 })).toMatchObject({ removed: [id] });
  });

  it('keeps a job that a process begins to use just before the removal', async () => {
    const id = await make(failed);
    const began: JobEvent = { type: 'began', run: 's', owner: currentOwner(), ...goal };
    const lifeOf = ledger.lifeOf.bind(ledger);
    ledger.lifeOf = async (asked) => {
      if ((await ledger.read(id))?.record.runs.length === 1) await ledger.append(id, began);
      return lifeOf(asked);
    };
    expect(await pruned({ keys: true })).toMatchObject({ removed: [], kept: { in_use: 1 } });
    expect(await ledger.read(id)).toBeDefined();
  });

  it('keeps a rejected job that a live process is about to send again', async () => {
    const prunedAfterClaim = async (claim: string): Promise<PruneResult> => {
      const id = await make([...sent, { type: 'rejected', attempt: 1, error }]);
      await ledger.claim(`send.${id}.2`, claim);
      return pruned({ keys: true });
    };
    expect(await prunedAfterClaim(JSON.stringify(deadOwner()))).toMatchObject({
      removed: [expect.any(String)],
    });
    expect(await prunedAfterClaim(JSON.stringify(currentOwner()))).toMatchObject({
      ...{ removed: [], kept: { in_use: 1, open: 0 } },
    });
    expect(await prunedAfterClaim('damaged')).toMatchObject({ removed: [], kept: { in_use: 1, open: 1 } });
  });

  it('keeps a piece of long text while its file exists', async () => {
    const variant = '0001-abcdef0123456789';
    const path = join(folder, 'book.mp3.pieces', variant);
    const file = { path, bytes: 1, sha256: '0'.repeat(64) };
    const whole = { ...file, path: join(folder, 'book.mp3') };
    const files = [file, whole].map((each): JobEvent => ({ type: 'file', file: each }));
    const id = await make([...delivered, ...files], { protocol: 'tts', variant });
    mkdirSync(join(folder, 'book.mp3.pieces'));
    for (const each of [file, whole]) writeFileSync(each.path, 'x');
    expect(await pruned()).toMatchObject({ removed: [], kept: { speech: 1 } });
    rmSync(path);
    expect(await pruned()).toMatchObject({ removed: [id] });
  });

  it('removes incomplete speech if a later take was paid for', async () => {
    const first = await make(failed, { protocol: 'tts', age: 61 });
    const second = await make(delivered, { protocol: 'tts' });
    expect(await pruned()).toMatchObject({ removed: [first, second] });
  });

  it('keeps incomplete speech if only an earlier take was paid for', async () => {
    const first = await make(delivered, { protocol: 'tts', age: 62 });
    const broken = await make(failed, { protocol: 'tts', age: 61 });
    const refused = await make([...sent, { type: 'rejected', attempt: 1, error }], { protocol: 'tts' });
    expect(await pruned()).toMatchObject({ removed: [first, refused], kept: { speech: 1 } });
    expect(await ledger.read(broken)).toBeDefined();
  });
});

describe('rm without --force', () => {
  const removed = (job: Job, from = ledger): Promise<Obstacle | undefined> =>
    removeJob(from, job, false, () => Promise.resolve([]));
  const jobAt = async (id: string): Promise<Job> => {
    const job = await ledger.read(id);
    if (job === undefined) throw new Error('there is no job');
    return job;
  };

  it.each<[string, (JobEvent | undefined)[], Obstacle | undefined]>([
    ['removes a job that was never sent', [], undefined],
    ['removes a job that has ended', delivered, undefined],
    ['keeps a job that is in progress', accepted, 'open'],
    ['keeps a job in doubt', [...sent, { type: 'unknown', attempt: 1, error }], 'open'],
    ['keeps an ended job with a damaged record', [...delivered, undefined], 'open'],
  ])('%s', async (_, events, obstacle) => {
    const id = await make(events);
    expect(await removed(await jobAt(id))).toBe(obstacle);
    expect((await ledger.read(id)) === undefined).toBe(obstacle === undefined);
    if (obstacle !== undefined) expect(await ledger.events(id)).toHaveLength(1 + events.length);
  });

  it('has no effect on a job that another process has removed since it was read', async () => {
    const job = await jobAt(await make([]));
    await ledger.claim(`send.${job.id}.1`, JSON.stringify(owner));
    await ledger.remove(job.id);
    expect(await removed(job)).toBeUndefined();
    expect(await ledger.claimState(job.id)).toBe('removed');
  });

  it('removes a job whose attempt was refused after the job was read', async () => {
    const job = await jobAt(await make([]));
    await ledger.claim(`send.${job.id}.1`, JSON.stringify(owner));
    for (const event of [...sent, { type: 'unavailable', attempt: 1, error } as const])
      await ledger.append(job.id, event);
    expect(await removed(job)).toBeUndefined();
    expect(await ledger.read(job.id)).toBeUndefined();
  });

  it('claims the next attempt before it removes a job, even after an attempt whose process died', async () => {
    const job = await jobAt(await make([]));
    await ledger.claim(`send.${job.id}.1`, JSON.stringify(owner));
    const claimed: string[] = [];
    const claim: Ledger['claim'] = (name, text) => (claimed.push(name), ledger.claim(name, text));
    expect(await removed(job, { ...ledger, claim })).toBeUndefined();
    expect(claimed).toEqual([`send.${job.id}.2`]);
  });

  it("does not change a job if another process claims the job's next attempt first", async () => {
    const job = await jobAt(await make([]));
    const claim: Ledger['claim'] = async (name, text) => {
      await ledger.claim(name, JSON.stringify(currentOwner()));
      return ledger.claim(name, text);
    };
    expect(await removed(job, { ...ledger, claim })).toBe('in_use');
    expect(await ledger.events(job.id)).toHaveLength(1);
  });
});
