import { describe, expect, it } from 'vitest';
import { removableInputs, removeInputs, uploadedInputs } from '../../src/flows/uploaded-inputs.ts';
import type { JobEvent } from '../../src/job.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import type { Store, UploadedInput } from '../../src/store/store.ts';
import { deadOwner } from '../jobs/harness.ts';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const nameOf = (letter: string, extension = 'png'): string => `sha256:${letter.repeat(64)}.${extension}`;
const [a, b, c, film] = [nameOf('a'), nameOf('b'), nameOf('c'), nameOf('d', 'mp4')];
const old = '2020-01-01T00:00:00.000Z';
const limit = '2025-01-01T00:00:00.000Z';
const fileOf = (name: string, uploaded_at = old): UploadedInput => ({
  name,
  url: `s3://m/${name}`,
  bytes: 1,
  uploaded_at,
});

const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const error = { code: 'auth', message: '' };
const rejected: JobEvent = { type: 'rejected', error };
const failed: JobEvent = { type: 'finished', state: 'failed', native_status: '', error };

let at = 1_795_000_000_000;

async function use(ledger: Ledger, request: unknown, ...events: JobEvent[]): Promise<string> {
  const id = await ledger.newId((at += 1));
  const prepared = { type: 'prepared', protocol: 'c', base_url: '', fingerprint: '', account: '' } as const;
  await ledger.create(id, [{ ...prepared, request }, ...events]);
  return id;
}

/** Returns a session whose store contains the given files, and the names of the files that the test removes. */
function scene(...files: UploadedInput[]): { session: ReturnType<typeof sessionIn>; gone: string[] } {
  const deleted: string[] = [];
  const uploads: Store['uploads'] = {
    list: () => Promise.resolve(files),
    remove: (name) => Promise.resolve(void deleted.push(name)),
  };
  const store = { uploads } as Partial<Store> as Store;
  return { session: sessionIn(freshFolder(), {}, { store: () => Promise.resolve(store) }), gone: deleted };
}

const before = Date.parse(limit);
const options = { before, queued: () => Promise.resolve([] as string[]) };

it('uploaded files are listed oldest first, each with the jobs that use the file or a frame of it', async () => {
  const { session } = scene(fileOf(a), fileOf(film), fileOf(b));
  const ledger = await session.ledger();
  const one = await use(ledger, { image: a }, accepted);
  const two = await use(ledger, { image: a, last_frame_image_url: `${film}#last`, prompt: 'x' }, rejected);
  const found = await uploadedInputs(session);
  expect(found.map(({ name, jobs }) => [name, jobs])).toEqual([
    [a, [one, two]],
    [film, [two]],
    [b, []],
  ]);
});

it('a job that is removed during the listing is treated as using no file', async () => {
  const { session } = scene(fileOf(a));
  const ledger = await session.ledger();
  const id = await use(ledger, { image: a }, accepted);
  const ids = async (): Promise<string[]> => ['job_that_is_gone', ...(await ledger.ids())];
  const racing = { ...session, ledger: () => Promise.resolve({ ...ledger, ids }) };
  expect(await uploadedInputs(racing)).toMatchObject([{ jobs: [id] }]);
});

describe('an uploaded file', () => {
  const keptFor = async (
    ...jobs: Parameters<typeof use> extends [Ledger, ...infer More] ? More[] : never
  ): Promise<object> => {
    const { session } = scene(fileOf(a), fileOf(c, limit));
    const ledger = await session.ledger();
    for (const job of jobs) await use(ledger, ...job);
    const { removed, kept } = await removableInputs(session, options);
    return { removed: removed.map(({ name }) => name), ...kept };
  };
  const free = { removed: [a], newer: 1, job: 0, queue: 0 };
  const needed = { removed: [], newer: 1, job: 1, queue: 0 };
  const began = (owner: ReturnType<typeof currentOwner>): JobEvent => ({
    ...{ type: 'began', run: 'r', owner, command: 'submit', ask: 'accept' },
  });

  it.each<[string, Parameters<typeof keptFor>, object]>([
    ['is removable if no job uses it', [], free],
    ['is removable if its job has ended', [[{ image: a }, rejected]], free],
    ['is not removable if its job is open', [[{ image: a }, accepted]], needed],
    ['is not removable if its job was never sent', [[{ image: a }]], needed],
    [
      'is not removable if its job was rejected but the run is alive',
      [[{ image: a }, began(currentOwner()), rejected]],
      needed,
    ],
    [
      'is removable if its job was rejected and the run is dead',
      [[{ image: a }, began(deadOwner()), rejected]],
      free,
    ],
    [
      'is removable after a job that used a frame of a video has ended',
      [[{ image: `${film}#first` }, rejected]],
      free,
    ],
  ])('%s', async (_, jobs, expected) => {
    expect(await keptFor(...jobs)).toEqual(expected);
  });

  it.each<[string, { elided?: boolean }, (JobEvent | undefined)[], number]>([
    ["is kept if an open job's body is not recorded", { elided: true }, [], 1],
    ['is removable after the end of a job whose body is not recorded', { elided: true }, [rejected], 0],
    ["is kept if a job's record is damaged", {}, [undefined], 1],
    ["is kept if an ended job's record is damaged", {}, [undefined, accepted, failed], 1],
  ])('%s', async (_, body, events, job) => {
    const { session } = scene(fileOf(a));
    const ledger = await session.ledger();
    const prepared = { type: 'prepared', protocol: 'c', base_url: '', fingerprint: '', account: '' } as const;
    await ledger.create(await ledger.newId((at += 1)), [{ ...prepared, ...body }, ...events]);
    expect((await removableInputs(session, options)).kept).toEqual({ newer: 0, job, queue: 0 });
  });

  it("is kept if it may be an open job's frame, or if a queued row uses it", async () => {
    const { session } = scene(fileOf(a), fileOf(b), fileOf(nameOf('e', 'jpg')), fileOf(film));
    const ledger = await session.ledger();
    await use(ledger, { image: b }, rejected);
    await use(ledger, { image: `${film}#first` }, accepted);
    const queued = (): Promise<string[]> => Promise.resolve([nameOf('e', 'jpg')]);
    const { removed, kept } = await removableInputs(session, { before, queued });
    expect([removed.map(({ name }) => name), kept]).toEqual([[b], { newer: 0, job: 2, queue: 1 }]);
  });

  it("is kept if it may be a later copy of an open job's video", async () => {
    const copy = nameOf('f', 'mp4');
    const { session } = scene(fileOf(copy), fileOf(a));
    await use(await session.ledger(), { video: film }, accepted);
    const { removed, kept } = await removableInputs(session, options);
    expect([removed.map(({ name }) => name), kept.job]).toEqual([[a], 1]);
  });

  const sendAgain = (ledger: Ledger, id: string): Promise<unknown> =>
    ledger.append(id, { type: 'sending', attempt: 2, owner: currentOwner() });

  it.each<[string, string, (ledger: Ledger, rejectedId: string) => Promise<unknown>]>([
    ['a new job', b, (ledger) => use(ledger, { image: b }, accepted)],
    ['a rejected job that is sent again', b, sendAgain],
    ['a rejected job that uses a frame and is sent again', `${film}#first`, sendAgain],
  ])('is removed, unless %s has started to use it in the meantime', async (_, image, start) => {
    for (const moment of ['after the listing', 'during the removal']) {
      const unused = nameOf('a', 'jpg');
      const { session, gone } = scene(fileOf(unused), fileOf(b));
      const ledger = await session.ledger();
      const id = await use(ledger, { image }, rejected);
      const { uploads } = (await session.store()) ?? {};
      const remove: NonNullable<Store['uploads']>['remove'] = async (name) => {
        if (moment === 'during the removal') await start(ledger, id);
        await uploads?.remove(name);
      };
      const store = { uploads: { ...uploads, remove } } as Store;
      const queued = async (): Promise<string[]> => {
        if (moment === 'after the listing') await start(ledger, id);
        return [];
      };
      const racing = { ...session, store: () => Promise.resolve(store) };
      const { removed, kept } = await removeInputs(racing, { before, queued });
      expect([removed.map(({ name }) => name), gone, kept.job], moment).toEqual([[unused], [unused], 1]);
    }
  });

  it.each([
    ['there is no store', undefined, 'usage'],
    ['the store is a program', {}, 'config'],
  ])('cannot be listed if %s', async (_, store, code) => {
    const session = sessionIn(
      freshFolder(),
      {},
      { store: () => Promise.resolve(store as Store | undefined) },
    );
    await expect(uploadedInputs(session)).rejects.toMatchObject({ code });
  });
});
