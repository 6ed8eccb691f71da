import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  earlierAsset,
  keyIn,
  partOf,
  recordedAssets,
  savedFile,
  type EarlierAsset,
} from '../../src/flows/earlier-job.ts';
import type { Job, JobEvent } from '../../src/job.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/servers.ts';
import { jobWith, sessionIn } from './flow-deps.ts';

describe('a flag value that refers to a job', () => {
  it.each([
    ['@intro', 'reference-video', { key: 'intro', index: 1 }],
    ['@intro#2', 'reference-video', { key: 'intro', index: 2 }],
    ['@intro:last', 'image', { key: 'intro', index: 1, place: 'last' }],
    ['@in:tro#12:first', 'image', { key: 'in:tro', index: 12, place: 'first' }],
  ])('can be %s for --%s', (ref, flag, part) => {
    expect(partOf(ref, flag)).toEqual({ ...part, label: `--${flag} ${ref}` });
    expect(keyIn(ref)).toBe(part.key);
  });

  it.each([
    ['@intro', 'reference-audio', 'cannot be used as audio'],
    ['@intro:last', 'reference-video', 'Use @intro.'],
  ])('cannot be %s for --%s', (ref, flag, words) => {
    expect(() => partOf(ref, flag)).toThrow(words);
  });

  it('begins with @, and other text does not refer to a job', () => expect(keyIn('intro')).toBe(''));
});

const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const success = (results: number): JobEvent => ({
  ...{ type: 'finished', state: 'succeeded', native_status: '', results },
});
const begunAt = (output: string): JobEvent => ({
  ...{ type: 'began', run: 'r', owner: { pid: 1, start: '', host: '' } },
  ...{ command: 'submit', ask: 'file', output },
});
const film = Buffer.from('a film');
const fileAt = (path: string, content = film): JobEvent & { type: 'file' } => ({
  type: 'file',
  file: { path, bytes: content.length, sha256: createHash('sha256').update(content).digest('hex') },
});

interface Scene {
  session: ReturnType<typeof sessionIn>;
  folder: string;
  job: (...events: JobEvent[]) => Promise<Job>;
  asset: (job: Job, end?: string) => Promise<EarlierAsset>;
}

function scene(store: Partial<ObjectStore> = {}): Scene {
  const folder = freshFolder();
  const session = sessionIn(
    join(folder, 'state'),
    {},
    { objects: () => Promise.resolve(store as ObjectStore) },
  );
  return {
    session,
    folder,
    job: async (...events) => jobWith(await session.ledger(), 'c', ...events),
    asset: (job, end = '') => earlierAsset(session, `@${job.id}${end}`, 'reference-video'),
  };
}

describe("an earlier job's video", () => {
  it("is the job's file, identified by its content", async () => {
    const { folder, job, asset } = scene();
    const path = join(folder, 'a.mp4');
    writeFileSync(path, film);
    const found = await asset(await job(accepted, success(1), fileAt(path)));
    expect(found.name).toMatch(/^sha256:[\da-f]{64}\.mp4$/);
    expect(Buffer.from(await found.read())).toEqual(film);
  });

  it('keeps the name of its first file if another file is recorded, and uses that file if the first is gone', async () => {
    const { folder, job, asset, session } = scene();
    const [old, newest, other] = [join(folder, 'a.mp4'), join(folder, 'b.mp4'), Buffer.from('another film')];
    writeFileSync(old, film);
    const made = await job(accepted, success(1), fileAt(old));
    const found = await asset(made);
    const ledger = await session.ledger();
    // `jobs fetch --mark` saves a file with another content, after this command has found the job.
    writeFileSync(newest, other);
    await ledger.append(made.id, fileAt(newest, other));
    const again = await asset(made);
    expect(again.name).toBe(found.name);
    expect(Buffer.from(await again.read())).toEqual(film);
    rmSync(old);
    expect(Buffer.from(await found.read())).toEqual(other);
    // Another download replaces the first file.
    writeFileSync(old, other);
    await ledger.append(made.id, fileAt(old, other));
    expect((await asset(made)).name).toBe(found.name);
    const latest = (await ledger.read(made.id)) ?? made;
    const names = recordedAssets(session, latest, { key: 'k', index: 1, label: '' }).map(({ name }) => name);
    expect(names).toEqual([found.name, expect.stringMatching(/^sha256:[\da-f]{64}\.mp4$/)]);
  });

  it('is identified by its recorded hash if its file is missing, and a dry run fetches nothing', async () => {
    const { folder, job, session } = scene();
    const path = join(folder, 'a.mp4');
    const began = begunAt(path);
    const find = (made: Job, canFetch: boolean): Promise<EarlierAsset> =>
      earlierAsset(session, `@${made.id}:last`, 'image', canFetch);
    const missing = await job(began, accepted, success(1), fileAt(path));
    for (const canFetch of [true, false])
      expect((await find(missing, canFetch)).name).toMatch(/^sha256:[\da-f]{64}\.mp4#last$/);
    expect(existsSync(path)).toBe(false);
    const unsaved = { code: 'usage', message: expect.stringContaining('has not been saved') as string };
    await expect(find(await job(began, accepted, success(1)), false)).rejects.toMatchObject(unsaved);
  });

  it('is identified by its recorded hash if its file has changed, and the error says so when it is read', async () => {
    const { folder, job, asset } = scene();
    const path = join(folder, 'a.mp4');
    writeFileSync(path, 'edited');
    const made = await job(accepted, success(1), fileAt(path));
    const found = await asset(made);
    const next = ['mgw', 'jobs', 'fetch', made.id, '-o', `${made.id}.mp4`];
    await expect(found.read()).rejects.toMatchObject({ code: 'local_io', charged: 'no', next });
  });

  it.each([
    ['a.mp4', 1, 'pending'],
    ['a-2.mp4', 2, 'pending'],
    ['2.mp4', 2, 'usage'],
  ])('that `jobs fetch` has saved as %s is fetched again if it is missing', async (name, count, code) => {
    const { folder, job, asset, session } = scene();
    const { file, ...event } = fileAt(join(folder, name));
    const made = await job(accepted, success(count), { ...event, file: { ...file, sample: count } });
    await expect((await asset(made, `#${count}`)).find()).rejects.toMatchObject({ code });
    const isFetched = code === 'pending';
    expect(session.notes.some((note) => note.includes('Fetching it again'))).toBe(isFetched);
  });

  it('must not be @last, and the error suggests the newest video', async () => {
    const { job, session } = scene();
    const find = (): Promise<unknown> => earlierAsset(session, '@last:last', 'image');
    await expect(find()).rejects.toThrow(/Use a key or a job id\.$/);
    const made = await job(accepted, success(1));
    await job();
    await expect(find()).rejects.toThrow(`such as @${made.id}:last.`);
    await expect(earlierAsset(session, '@last', 'image')).rejects.toThrow(`such as @${made.id}:last.`);
    await expect(earlierAsset(session, '@last', 'video')).rejects.toThrow(`such as @${made.id}.`);
    await expect(earlierAsset(session, '@last', 'audio')).rejects.toThrow('cannot be used as audio');
  });

  it.each([
    ['@intro', '@intro:last for the last frame'],
    ['@intro#2', '@intro#2:last for the last frame'],
    ['@intro:middle', 'a reference that ends in :first or :last, such as @intro:last'],
    ['@intro:middle#2', '@intro:middle#2:last for the last frame'],
  ])('is not an image if it is %s, and the error suggests a frame', (ref, suggestion) => {
    expect(() => partOf(ref, 'image')).toThrow(`this flag requires an image. Use ${suggestion}.`);
  });

  it('is not used if the file changes while ffmpeg reads it', async () => {
    const { folder, job, session } = scene();
    const [path, programs] = [join(folder, 'a.mp4'), process.env['PATH'] ?? ''];
    writeFileSync(path, film);
    writeFileSync(join(folder, 'ffmpeg'), `#!/bin/sh\nprintf png; echo more >> '${path}'\n`, { mode: 0o755 });
    process.env['PATH'] = `${folder}:${programs}`;
    onEnd(() => void (process.env['PATH'] = programs));
    const made = await job(accepted, success(1), fileAt(path));
    const frame = await earlierAsset(session, `@${made.id}:last`, 'image');
    expect(frame.name).toMatch(/\.mp4#last$/);
    await expect(frame.read()).rejects.toThrow('changed while the command ran');
  });

  it('is the newest file that was recorded with its number, regardless of the file names', async () => {
    const { folder, job, session } = scene();
    const at = (name: string): string => join(folder, name);
    const names = ['1-scene-1.mp4', '2-scene-1.mp4', 'v1/clip-2.mp4', 'v2/clip-2.mp4'];
    for (const each of ['v1', 'v2']) mkdirSync(at(each));
    const files = names.map((name, index): JobEvent => {
      const { file, ...event } = fileAt(at(name));
      return { ...event, file: { ...file, sample: (index % 2) + 1 } };
    });
    const made = await job(accepted, success(2), ...files);
    for (const name of names) writeFileSync(at(name), film);
    const saved = async (index: number): Promise<string | undefined> =>
      (await savedFile(session, made, index, 2))?.path;
    expect([await saved(1), await saved(2)]).toEqual([at('v1/clip-2.mp4'), at('v2/clip-2.mp4')]);
    rmSync(at('v2/clip-2.mp4'));
    expect(await saved(2)).toBe(at('2-scene-1.mp4'));
    rmSync(at('2-scene-1.mp4'));
    expect(await saved(2)).toBeUndefined();
    const parts = [1, 2].map((index) => recordedAssets(session, made, { key: 'k', index, label: '' }).length);
    expect(parts).toEqual([1, 1]);
    expect((await savedFile(session, made, 1, 1))?.path).toBe(at('v1/clip-2.mp4'));
  });

  it('without a recorded number, is the file at the output of its command, or else the file with the number in its name', async () => {
    const { folder, job, session } = scene();
    const at = (name: string): string => join(folder, name);
    const began = begunAt(at('{n}-scene-1.mp4'));
    const names = ['1-scene-1.mp4', '2-scene-1.mp4', 'copy-1.mp4', 'copy-2.mp4'];
    for (const name of names) writeFileSync(at(name), film);
    const saved = async (...recorded: string[]): Promise<(string | undefined)[]> => {
      const made = await job(began, accepted, success(2), ...recorded.map((name) => fileAt(at(name))));
      return Promise.all([1, 2].map(async (index) => (await savedFile(session, made, index, 2))?.path));
    };
    expect(await saved(...names)).toEqual([at('1-scene-1.mp4'), at('2-scene-1.mp4')]);
    expect(await saved('copy-1.mp4', 'copy-2.mp4')).toEqual([at('copy-1.mp4'), at('copy-2.mp4')]);
  });

  it('is read from the store if the video is an object', async () => {
    const { job, session } = scene({ has: (url) => Promise.resolve(url.endsWith('b.mp4')) });
    const made = await job(
      accepted,
      success(1),
      fileAt('/gone.mp4'),
      fileAt('s3://m/b.mp4'),
      fileAt('s3://m/a.mp4'),
    );
    expect((await savedFile(session, made, 1, 1))?.path).toBe('s3://m/b.mp4');
  });

  it.each<[string, JobEvent[], string, string, string[] | undefined]>([
    [
      'has failed',
      [accepted, { type: 'finished', state: 'failed', native_status: '' }],
      '',
      'has failed',
      ['jobs', 'show'],
    ],
    [
      'was rejected',
      [{ type: 'rejected', error: { code: 'auth', message: '' } }],
      '',
      'was rejected',
      ['jobs', 'show'],
    ],
    ['has not finished', [accepted], '', 'has not finished', ['jobs', 'fetch']],
    ['was not saved', [accepted, success(1)], '', 'has not been saved', ['jobs', 'fetch']],
    ['saved none of its videos', [accepted, success(2)], '#2', 'has not been saved', ['jobs', 'fetch']],
    ['has fewer videos', [accepted, success(2)], '#3', 'has only 2 videos', undefined],
    ['has no video 0', [accepted, success(2)], '#0', 'has only 2 videos', undefined],
  ])('cannot be used if the job %s', async (_, events, end, words, next) => {
    const { job, asset } = scene();
    const made = await job(...events);
    const error: unknown = await asset(made, end).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: 'usage', message: expect.stringContaining(words) as string });
    const shown = next && ['mgw', ...next, made.id, ...(next[1] === 'fetch' ? ['-o', `${made.id}.mp4`] : [])];
    expect((error as { next?: string[] }).next).toEqual(shown);
  });

  it('can be fetched to the planned output with the suggested command if it was never saved', async () => {
    const { job, asset, folder } = scene();
    const began = begunAt(join(folder, 'own.mp4'));
    const made = await job(began, accepted);
    await expect(asset(made)).rejects.toMatchObject({ next: ['mgw', 'jobs', 'fetch', made.id] });
  });

  it('is fetched again if its file is missing, and costs nothing if that fails', async () => {
    const { job, asset, folder } = scene();
    const began = begunAt(join(folder, 'own.mp4'));
    const made = await job(began, accepted, success(2));
    await expect(asset(made, '#2')).rejects.toMatchObject({
      ...{ code: 'pending', charged: 'no', retry: 'safe' },
    });
    writeFileSync(join(folder, 'own-2.mp4'), 'changed');
    await expect(asset(made, '#2')).rejects.toMatchObject({ code: 'local_io', charged: 'no' });
  });

  it('cannot be used if the job is speech', async () => {
    const { session, asset } = scene();
    const made = await jobWith(await session.ledger(), 'tts', accepted);
    await expect(asset(made)).rejects.toThrow('is speech, not a video');
  });
});
