import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findDoubt, resolve, resolveJob, type Resolution } from '../../src/flows/resolve.ts';
import type { Session } from '../../src/flows/session.ts';
import type { Delivered } from '../../src/flows/deliver.ts';
import { chargesOf } from '../../src/budget/spend.ts';
import { unreachableSenderText } from '../../src/jobs/reconcile.ts';
import { findJob } from '../../src/jobs/ref.ts';
import { lostProtocol, type JobEvent } from '../../src/job.ts';
import { resolveSettings } from '../../src/config/resolve.ts';
import { decimalOf } from '../../src/decimal.ts';
import { names } from '../../src/ledger/names.ts';
import { MgwError } from '../../src/errors.ts';
import { storedName, type Store } from '../../src/store/store.ts';
import { deadOwner } from '../jobs/harness.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { jobWith, sessionIn } from './flow-deps.ts';

const error = { code: 'submit_unknown', message: 'lost' };
const sending: JobEvent = { type: 'sending', attempt: 1, owner: deadOwner() };
const unknown: JobEvent = { type: 'unknown', attempt: 1, error };
const adopted: Resolution = { how: 'adopted', handle: 'task_1' };
const resubmit: Resolution = { how: 'resubmit' };
const notCreated: Resolution = { how: 'not-created' };

function decide(session: Session, ref: string, resolution: Resolution, output?: string): Promise<Delivered> {
  const target = output === undefined ? undefined : ({ kind: 'file', path: output } as const);
  const deadline = { remainingMs: () => Infinity };
  return resolve(session, ref, resolution, { target, force: false, deadline });
}

// Creates a job in doubt, and returns its id.
async function doubtful(session: Session, more: object, ...events: JobEvent[]): Promise<string> {
  const ledger = await session.ledger();
  const id = await ledger.newId(1_795_000_000_000);
  const prepared = {
    type: 'prepared',
    protocol: 'c',
    base_url: '',
    fingerprint: 'f',
    account: '',
  } as const;
  await ledger.create(id, [{ ...prepared, ...more }, sending, ...events]);
  return id;
}

const request = { model: 'vendor-h3', prompt: 'x' };

describe('the suggested ways to resolve a job in doubt', () => {
  const waysOf = async (more: object, ...events: JobEvent[]): Promise<string[][]> => {
    const session = sessionIn(freshFolder());
    const id = await doubtful(session, { request, ...more }, ...events);
    const { job, ways } = await findDoubt(session, id);
    expect(job.id).toBe(id);
    expect(ways.every(({ meaning }) => meaning !== '')).toBe(true);
    return ways.map(({ command }) => {
      expect(command.slice(0, 4)).toEqual(['mgw', 'jobs', 'resolve', id]);
      return command.slice(4);
    });
  };

  it('are three for a video, and one for speech', async () => {
    const others = [['--not-created'], ['--resubmit']];
    expect(await waysOf({}, unknown)).toEqual([['--adopt', 'HANDLE'], ...others]);
    expect(await waysOf({}, { ...unknown, handle: 'task_9' })).toEqual([['--adopt', 'task_9'], ...others]);
    // The job's process is dead, although no event records this.
    expect(await waysOf({})).toHaveLength(3);
    expect(await waysOf({ protocol: 'tts' }, unknown)).toEqual([['--not-created']]);
  });

  it.each([{ elided: true }, { request: undefined }])(
    'do not include --resubmit if the body is not recorded: %j',
    async (more) => {
      expect(await waysOf(more, unknown)).toEqual([['--adopt', 'HANDLE'], ['--not-created']]);
    },
  );

  it('do not include --resubmit if the record is damaged', async () => {
    const state = freshFolder();
    const session = sessionIn(state);
    const id = await doubtful(session, { request }, unknown);
    appendFileSync(join(state, 'jobs', `${id}.jsonl`), '{"damaged":true}\n');
    const { job, ways } = await findDoubt(session, id);
    expect(ways.map(({ resolution }) => resolution)).toEqual(['adopted', 'not-created']);
    await expect(resolveJob(await session.ledger(), job, resubmit)).rejects.toMatchObject({ exitCode: 2 });
  });

  it('are replaced by an error for a job that is not in doubt', async () => {
    const session = sessionIn(freshFolder());
    const { id } = await jobWith(await session.ledger(), 'c');
    const refusal = { code: 'usage', next: ['mgw', 'jobs', 'show', id], job: { id } };
    await expect(findDoubt(session, id)).rejects.toMatchObject(refusal);
    await expect(decide(session, id, notCreated)).rejects.toMatchObject(refusal);
  });

  it.each<[string, JobEvent[]]>([
    ['prepared', []],
    ['sending', [sending]],
    ['rejected', [{ type: 'rejected', attempt: 1, error }]],
  ])('are refused for a job in the state %s, and nothing is recorded', async (_, events) => {
    const ledger = await sessionIn(freshFolder()).ledger();
    const job = await jobWith(ledger, 'c', ...events);
    for (const resolution of [adopted, notCreated, resubmit])
      await expect(resolveJob(ledger, job, resolution)).rejects.toMatchObject({ code: 'usage' });
    expect(await ledger.events(job.id)).toHaveLength(1 + events.length);
  });
});

describe('speech in doubt', () => {
  it.each<[Resolution, object, string]>([
    [adopted, {}, '--new.'],
    [resubmit, { key: 'k' }, 'another --key.'],
  ])(
    'has no task, so the decision %j is refused (other fields of the record: %j)',
    async (resolution, more, take) => {
      const session = sessionIn(freshFolder());
      const id = await doubtful(session, { protocol: 'tts', ...more }, unknown);
      const message = `A speech job has no task at the gateway: use --not-created, or run mgw tts again with ${take}`;
      await expect(decide(session, id, resolution)).rejects.toMatchObject({ code: 'usage', message });
      expect((await (await session.ledger()).read(id))?.state).toBe('unknown');
    },
  );

  it('remains in doubt until the user resolves it, even if its response was recorded', async () => {
    const session = sessionIn(freshFolder());
    const reply = { status: 200, headers: {}, text: '', complete: false };
    const { id } = await jobWith(await session.ledger(), 'tts', sending, {
      type: 'reply',
      attempt: 1,
      reply,
    });
    const done = await decide(session, id, notCreated);
    expect([done.job.state, done.files, done.isResumed]).toEqual(['rejected', [], true]);
  });
});

describe('a job whose sender may be alive', () => {
  const sendingAfar: JobEvent = { ...sending, owner: { pid: 7, start: '1', host: 'afar' } };
  const warning = 'cannot be reached from here and may still be waiting for the response.';

  it.each<[string, JobEvent, Resolution, number]>([
    ['is resolved with a warning', sendingAfar, notCreated, 1],
    ['is resolved without a warning if a task is adopted', sendingAfar, adopted, 0],
    ['is resolved without a warning if the sender is dead', sending, notCreated, 0],
  ])('%s', async (_, event, resolution, count) => {
    const session = sessionIn(freshFolder());
    const { id } = await jobWith(await session.ledger(), 'c', event);
    await decide(session, id, resolution);
    expect(session.notes.filter((note) => note.includes(warning))).toHaveLength(count);
  });

  it('is resolved with a warning if another command has already recorded the doubt', async () => {
    const session = sessionIn(freshFolder());
    const doubt = { ...unknown, error: { ...error, message: unreachableSenderText } };
    const { id } = await jobWith(await session.ledger(), 'tts', sendingAfar, doubt);
    await decide(session, id, notCreated);
    expect(session.notes).toEqual([expect.stringContaining(warning)]);
  });

  it('is not said to have ended if its response was not read', async () => {
    const session = sessionIn(freshFolder());
    const reply = { status: 200, headers: {}, text: '', complete: false };
    const reported = { type: 'reply', attempt: 1, reply } as const;
    for (const [event, text] of [
      [sendingAfar, 'may still be reading the response.'],
      [sending, 'The process ended before the response was read.'],
    ] as const) {
      const { id } = await jobWith(await session.ledger(), 'tts', event, reported);
      await decide(session, id, notCreated);
      expect(JSON.stringify(await (await session.ledger()).events(id))).toContain(text);
    }
  });
});

describe('a video in doubt', () => {
  const base_url = 'https://g.example';

  it('gets its state from a response that was recorded but not evaluated', async () => {
    const session = sessionIn(freshFolder());
    const reply = {
      status: 200,
      headers: {},
      text: '{"task_id":"task_1","status":"queued"}',
      complete: true,
    };
    const { id } = await jobWith(await session.ledger(), 'c', sending, { type: 'reply', attempt: 1, reply });
    expect((await decide(session, id, adopted)).job).toMatchObject({ state: 'queued', handle: 'task_1' });
    await expect(decide(session, id, notCreated)).rejects.toMatchObject({ code: 'conflict' });
  });

  it('is resolved without a configured gateway, but not with another gateway', async () => {
    const state = freshFolder();
    const session = sessionIn(state, { MGW_BASE_URL: undefined });
    const ledger = await session.ledger();
    const prepared = { type: 'prepared', protocol: 'c', base_url, fingerprint: 'f', account: '' } as const;
    const id = await ledger.newId(1_795_000_000_000);
    await ledger.create(id, [{ ...prepared, request: { prompt: 'a boat' } }, sending, unknown]);
    const elsewhere = ['mgw', '--base-url', base_url, 'jobs', 'resolve', id];
    await expect(decide(sessionIn(state), id, adopted)).rejects.toMatchObject({ code: 'usage' });
    await expect(findDoubt(sessionIn(state), id)).rejects.toMatchObject({ code: 'usage', next: elsewhere });
    expect((await findDoubt(session, id)).ways).toHaveLength(3);
    expect((await decide(session, id, adopted)).job.handle).toBe('task_1');
  });

  it.each<[string, Resolution, (id: string) => string[]]>([
    [
      'the same command with that base URL',
      notCreated,
      (id) => ['--base-url', base_url, 'jobs', 'resolve', id, '--not-created'],
    ],
    [
      'a login to that gateway',
      adopted,
      () => ['auth', 'login', '--profile', 'g.example', '--base-url', base_url],
    ],
  ])(
    'is refused if it belongs to another gateway, and the error suggests %s for the decision %j',
    async (_, resolution, next) => {
      const profile = { api_key: 'sk-of-another-gateway' };
      const session = sessionIn(freshFolder(), { MGW_API_KEY: undefined }, {}, profile);
      const id = await doubtful(session, { base_url }, unknown);
      await expect(decide(session, id, resolution)).rejects.toMatchObject({ next: ['mgw', ...next(id)] });
    },
  );

  it.each([
    ['its last recorded attempt, even if another process is starting the next one', '', 1],
    ['the last claimed attempt if its record is damaged', '{"damaged":true}\n', 3],
  ])('is resolved for %s', async (_, damage, attempt) => {
    const state = freshFolder();
    const session = sessionIn(state);
    const id = await doubtful(session, {}, unknown);
    const ledger = await session.ledger();
    for (const next of attempt === 1 ? [2] : [2, 3])
      await ledger.claim(names.attempt(id, next), JSON.stringify(deadOwner()));
    appendFileSync(join(state, 'jobs', `${id}.jsonl`), damage);
    await decide(session, id, notCreated);
    expect((await ledger.events(id)).at(-1)).toMatchObject({ type: 'resolved', attempt });
  });

  it('cannot adopt an invalid handle', async () => {
    const session = sessionIn(freshFolder());
    const { id } = await jobWith(await session.ledger(), 'c', sending, unknown);
    await expect(decide(session, id, { how: 'adopted', handle: '../x' })).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining('--adopt') as string,
    });
    expect((await (await session.ledger()).read(id))?.state).toBe('unknown');
  });

  it('is resolved without a protocol if its protocol is lost, and is not fetched', async () => {
    const session = sessionIn(freshFolder());
    const ledger = await session.ledger();
    const { id } = await jobWith(ledger, lostProtocol, sending, unknown);
    await expect(decide(session, id, adopted, '/out.mp4')).rejects.toMatchObject({ code: 'usage' });
    expect((await ledger.read(id))?.state).toBe('unknown');
    expect((await decide(session, id, adopted)).job.handle).toBe('task_1');
  });
});

describe('an adopted handle', () => {
  const observed: JobEvent = { type: 'observed', state: 'running', native_status: 'RUNNING' };
  const corrected: JobEvent = { type: 'accepted', handle: 'task_2', adopted: true, instead_of: 'task_1' };
  const adoptedJob = async (...events: JobEvent[]): Promise<[Session, string]> => {
    const session = sessionIn(freshFolder());
    const ledger = await session.ledger();
    const { id } = await jobWith(ledger, 'c', sending, { ...unknown, handle: 'task_1' });
    await decide(session, id, adopted);
    for (const event of events) await ledger.append(id, event);
    return [session, id];
  };

  it('can be corrected if the gateway has never confirmed it, and the attempt counts once', async () => {
    const [session, id] = await adoptedJob();
    const { job, ways } = await findDoubt(session, id);
    expect([job.handle, ways[0]?.command.slice(4)]).toEqual(['task_1', ['--adopt', 'HANDLE']]);
    const ledger = await session.ledger();
    const { length } = await ledger.events(id);
    await decide(session, id, adopted);
    expect(await ledger.events(id)).toHaveLength(length);
    await decide(session, id, { how: 'adopted', handle: 'task_2' });
    const { job: corrected } = await decide(session, id, { how: 'adopted', handle: 'task_11' });
    expect([corrected.state, corrected.handle]).toEqual(['queued', 'task_11']);
    expect((await findJob(ledger, 'task_11'))?.id).toBe(id);
    await ledger.append(id, observed);
    expect(chargesOf(await ledger.events(id)).map(({ outcome }) => outcome)).toEqual(['accepted']);
  });

  it('can be replaced by the decision that nothing was created if the gateway has never confirmed it', async () => {
    const [session, id] = await adoptedJob();
    const { job } = await decide(session, id, notCreated);
    expect([job.state, job.handle]).toEqual(['rejected', undefined]);
  });

  it.each<[string, JobEvent[]]>([
    ['was confirmed by the gateway', [observed]],
    ['was corrected to a task that the gateway confirmed', [corrected, observed]],
  ])('is not replaced if it %s', async (_, events) => {
    const [session, id] = await adoptedJob(...events);
    for (const other of [notCreated, resubmit, { how: 'adopted', handle: 'task_11' } as const])
      await expect(decide(session, id, other)).rejects.toMatchObject(
        other.how === 'resubmit' ? { exitCode: 2 } : { code: 'conflict', next: ['mgw', 'jobs', 'show', id] },
      );
  });

  it.each<[string, JobEvent]>([
    ['a task that was confirmed in the meantime', observed],
    ['a handle that was corrected in the meantime', corrected],
  ])('is not changed by a late decision about %s', async (_, event) => {
    const [session, id] = await adoptedJob(event);
    const ledger = await session.ledger();
    const before = await ledger.read(id);
    await ledger.append(id, { type: 'resolved', attempt: 1, how: 'not-created', instead_of: 'task_1' });
    await ledger.append(id, { type: 'accepted', handle: 'task_9', adopted: true, instead_of: 'task_1' });
    expect(await ledger.read(id)).toMatchObject({ state: before?.state, handle: before?.handle });
  });
});

describe('--resubmit', () => {
  it('is a conflict if the task was accepted in the meantime, regardless of the budget', async () => {
    const session = sessionIn(freshFolder());
    const id = await doubtful(session, { request }, unknown);
    await (await session.ledger()).append(id, { type: 'accepted', handle: 'task_1' });
    const options = { target: undefined, force: false, deadline: { remainingMs: () => Infinity } };
    const again = resolve(session, id, resubmit, { ...options, budget: '0' });
    await expect(again).rejects.toMatchObject({ code: 'conflict' });
  });

  const image = storedName('boat.png', new TextEncoder().encode('boat'));
  it.each([
    ['was too large to record', { request, elided: true }, /with --new\.$/],
    ['was too large, and the job has a key', { request, elided: true, key: 'k' }, /with another --key\.$/],
    ['is not recorded', {}, /with --new\.$/],
  ])('is refused if the body %s', async (_, more, message) => {
    const session = sessionIn(freshFolder());
    const id = await doubtful(session, more, unknown);
    const error = { code: 'usage', message: expect.stringMatching(message) as string };
    await expect(decide(session, id, resubmit)).rejects.toMatchObject(error);
    expect((await (await session.ledger()).read(id))?.state).toBe('unknown');
  });

  it.each<[string, MgwError, object]>([
    [
      'is no longer in the store',
      new MgwError('usage', 'It is gone.'),
      { code: 'usage', message: 'It is gone. First resolve the job with --not-created.' },
    ],
    [
      'cannot be found because the store fails',
      new MgwError('store', 'No answer.'),
      { code: 'store', message: 'No answer.' },
    ],
  ])('keeps the job in doubt if a file %s', async (_, thrown, expected) => {
    const store = { url: () => Promise.reject(thrown) } as Partial<Store> as Store;
    const session = sessionIn(freshFolder(), {}, { store: () => Promise.resolve(store) });
    const id = await doubtful(session, { request: { ...request, image } }, unknown);
    const refused: unknown = await decide(session, id, resubmit).catch((reason: unknown) => reason);
    expect(refused).toMatchObject(expected);
    if (thrown.code === 'usage')
      expect(refused).toMatchObject({ next: ['mgw', 'jobs', 'resolve', id, '--not-created'], job: { id } });
    expect((await (await session.ledger()).read(id))?.state).toBe('unknown');
  });

  // No price is known, so the first applicable budget refuses the submission.
  it.each<[string, object, string | undefined, object]>([
    ['its standing budget', { budgets: ['clips'] }, undefined, { name: 'clips', limit: '3' }],
    ['its --budget', { budgets: ['--budget'], limit: '0.6' }, undefined, { name: '--budget', limit: '0.6' }],
    [
      'the budget of its batch',
      { budgets: ['batch b'], limit: '4' },
      undefined,
      { name: 'batch b', limit: '4' },
    ],
    [
      'another --budget that the user passes',
      { budgets: ['batch b'], limit: '4' },
      '5',
      { name: 'batch b', limit: '5' },
    ],
  ])('is charged to %s, like the original submission', async (_, money, budget, expected) => {
    const session = sessionIn(freshFolder());
    await (await session.budget('standing', 'clips')).setLimit({ amount: decimalOf(3) });
    const ledger = await session.ledger();
    const options = { target: undefined, force: false, deadline: { remainingMs: () => Infinity }, budget };
    const id = await doubtful(
      session,
      { request },
      { ...sending, ...money, attempt: 2 },
      {
        ...unknown,
        attempt: 2,
      },
    );
    await expect(resolve(session, id, resubmit, options)).rejects.toMatchObject({
      ...{ code: 'budget', exitCode: 12, budget: expected },
    });
    expect((await ledger.read(id))?.state).toBe('unknown');
  });

  it.each<[string, object, string | undefined, boolean]>([
    ['a standing budget, and the error does not suggest --budget', { budgets: ['clips'] }, undefined, false],
    [
      'its --budget, and the error suggests the required amount',
      { budgets: ['--budget'], limit: '1' },
      undefined,
      true,
    ],
    [
      'the budget of its batch, and the error suggests the required amount',
      { budgets: ['batch b'], limit: '1' },
      undefined,
      true,
    ],
    [
      'the --budget that the user passes, and the error suggests no other',
      { budgets: ['--budget'], limit: '1' },
      '2',
      false,
    ],
  ])('is refused if it exceeds %s', async (_, money, budget, isSuggested) => {
    const session = sessionIn(freshFolder(), {}, {}, { prices: { c: { 'vendor-h3': 'video=4' } } });
    await (await session.budget('standing', 'clips')).setLimit({ amount: decimalOf(3) });
    const again = { ...sending, ...money, attempt: 2 };
    const id = await doubtful(session, { request }, again, { ...unknown, attempt: 2 });
    const options = { target: undefined, force: false, deadline: { remainingMs: () => Infinity }, budget };
    await expect(resolve(session, id, resubmit, options)).rejects.toMatchObject({
      ...{ code: 'budget', lacks: isSuggested ? ['--budget', '4'] : undefined },
    });
  });

  it.each<[string, string | undefined, object, string[]]>([
    ['its recorded budgets', undefined, {}, ['--budget', '4', '--budget-name', 'clips']],
    ['the budgets that the user passes', '5', { budgetName: 'songs' }, ['--budget', '5']],
  ])(
    'suggests %s if its response is lost too, and reserves its estimated cost only once',
    async (_, budget, flags, expected) => {
      const server = await httpServer((_, response) => void response.destroy());
      const profile = { prices: { c: { 'vendor-h3': 'video=4' } } };
      const settings = resolveSettings({ flags, env: {}, file: { profiles: { default: {} } } });
      const own = sessionIn(freshFolder(), { MGW_BASE_URL: server.url }, {}, profile);
      const session = { ...own, settings: () => Promise.resolve(settings) };
      await (await own.budget('standing', 'clips')).setLimit({ amount: decimalOf(4) });
      const again: JobEvent = { ...sending, attempt: 2, budgets: ['clips', '--budget'], limit: '4' };
      const id = await doubtful(own, { request }, again, { ...unknown, attempt: 2 });
      const options = { target: undefined, force: false, deadline: { remainingMs: () => Infinity }, budget };
      await expect(resolve(session, id, resubmit, options)).rejects.toMatchObject({
        ...{ code: 'submit_unknown', next: ['mgw', 'jobs', 'resolve', id, ...expected] },
      });
    },
  );

  it.each<[string, object]>([
    ['/v1/videos', { endpoint: 'videos' }],
    ['/v1/video/generations', {}],
  ])('uses the path %s of the original submission', async (path, more) => {
    const paths: string[] = [];
    const server = await httpServer((call, response) => {
      paths.push(call.path);
      response.destroy();
    });
    const session = sessionIn(freshFolder(), { MGW_BASE_URL: server.url });
    const id = await doubtful(session, { request, ...more }, unknown);
    await expect(decide(session, id, resubmit)).rejects.toMatchObject({ code: 'submit_unknown' });
    expect(paths).toEqual([path]);
  });

  it.each<[string, Partial<typeof sending>]>([
    ['was paid for under an earlier --budget', { budgets: ['batch film'], limit: '90' }],
    ['was paid for without --budget', {}],
  ])("keeps to the latest budget of the batch if the row's job %s", async (_, money) => {
    const profile = { prices: { c: { 'vendor-h3': 'video=4' } } };
    const session = sessionIn(freshFolder(), {}, {}, profile);
    await (await session.budget('batch', 'film')).setLimit({ amount: decimalOf(3) });
    const again: JobEvent = { ...sending, attempt: 2, ...money };
    const id = await doubtful(session, { request, model: 'vendor-h3', key: 'film/a' }, again, {
      ...unknown,
      attempt: 2,
    });
    await expect(decide(session, id, resubmit)).rejects.toMatchObject({
      exitCode: 12,
      budget: { limit: '3' },
    });
  });

  it('requires an amount if the amount of its --budget was not recorded', async () => {
    const session = sessionIn(freshFolder());
    const again: JobEvent = { ...sending, attempt: 2, budgets: ['--budget'] };
    const id = await doubtful(session, { request }, again, { ...unknown, attempt: 2 });
    await expect(decide(session, id, resubmit)).rejects.toMatchObject({
      ...{ code: 'usage', next: ['mgw', 'jobs', 'resolve', id, '--resubmit', '--budget', 'AMOUNT'] },
    });
  });
});
