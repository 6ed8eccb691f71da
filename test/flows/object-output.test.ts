import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import { deliverToObjects, localPath, ObjectSink, upload } from '../../src/flows/object-output.ts';
import type { Job, JobEvent, JobFile } from '../../src/job.ts';
import { savedText } from '../../src/jobs/mark.ts';
import { pathsAt } from '../../src/jobs/output.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { freshFolder } from '../support/servers.ts';
import { flowDeps, jobWith } from './flow-deps.ts';

type Deps = Awaited<ReturnType<typeof flowDeps>>;

interface Scene {
  deps: Deps;
  /** The requests to the store. */
  calls: string[];
  objects: Set<string>;
  /** Returns the files that are waiting for an upload. */
  pendingFiles: () => string[];
  job: (...events: JobEvent[]) => Promise<Job>;
}

async function scene(put?: () => Promise<void>): Promise<Scene> {
  const [calls, objects] = [[] as string[], new Set<string>()];
  const store: Partial<ObjectStore> = {
    has: (url) => Promise.resolve(objects.has(url)),
    checkFree: (url, force) => {
      calls.push(`check ${url} ${force}`);
      return objects.has(url)
        ? Promise.reject(new MgwError('output_exists', 'It exists.'))
        : Promise.resolve();
    },
    put: async (url, { path }, { force, earlierUploads: earlier, onStarted: onBegun }) => {
      if (objects.has(url)) return;
      calls.push(`put ${url} ${readFileSync(path, 'utf8')} ${force} ${earlier?.length}`);
      await onBegun?.({ id: 'u1', since: '2026-11-22T10:00:00.000Z' });
      await put?.();
      objects.add(url);
    },
  };
  const deps = await flowDeps(freshFolder(), { objects: () => Promise.resolve(store as ObjectStore) });
  const pendingFiles = (): string[] => (existsSync(deps.uploadFolder) ? readdirSync(deps.uploadFolder) : []);
  const job: Scene['job'] = (...events) =>
    jobWith(deps.ledger, 'c', { type: 'accepted', handle: 'task_1' }, ...events);
  return { deps, calls, objects, pendingFiles, job };
}

const success = (results: number): JobEvent => ({
  ...{ type: 'finished', state: 'succeeded', native_status: '', results },
});
const options = { force: false, deadline: { remainingMs: () => Infinity } };

const content = 'x';
const fileAt = (path: string, more: Partial<JobFile> = {}): JobFile => ({
  ...{ path, bytes: 1, sha256: createHash('sha256').update(content).digest('hex') },
  ...more,
});
const toUrl = (url: string, requested = 1): { url: string; requested: number } => ({ url, requested });

/** Returns a function that saves a job's results at a local path, as a download does. */
function saver({ ledger }: Deps, { id }: Job, ...samples: number[]): (path: string) => Promise<void> {
  return async (path) => {
    for (const sample of samples.length === 0 ? [1] : samples) {
      const file = fileAt(pathsAt(path, sample).at(-1) ?? '', samples.length === 0 ? {} : { sample });
      writeFileSync(file.path, content);
      await ledger.append(id, { type: 'file', file });
    }
  };
}

/** Fails like a download that the gateway no longer offers. */
const expired = (): Promise<never> =>
  Promise.reject(new MgwError('result_unavailable', 'It is gone.', { charged: 'yes' }));

describe('results saved as objects', () => {
  it('become one object with the requested name or several numbered objects, and no local file remains', async () => {
    const { deps, calls, pendingFiles, job } = await scene();
    const one = await job(success(1));
    const saved = await deliverToObjects(one, toUrl('s3://m/a.mp4'), options, deps, saver(deps, one));
    expect(saved).toEqual([fileAt('s3://m/a.mp4')]);
    const two = await job(success(2));
    const force = { ...options, force: true };
    const both = await deliverToObjects(two, toUrl('s3://m/b.mp4', 2), force, deps, saver(deps, two, 1, 2));
    expect(both.map(({ path }) => path)).toEqual(['s3://m/b-1.mp4', 's3://m/b-2.mp4']);
    const puts = ['a.mp4 x false', 'b-1.mp4 x true', 'b-2.mp4 x true'].map((each) => `put s3://m/${each} 0`);
    expect([calls, pendingFiles()]).toEqual([puts, []]);
    const last = await deps.ledger.read(two.id);
    expect(last?.files.map(({ path }) => path)).toEqual(['s3://m/b-1.mp4', 's3://m/b-2.mp4']);
    expect(last?.record.uploads).toMatchObject([
      { url: 's3://m/b-1.mp4', id: 'u1' },
      { url: 's3://m/b-2.mp4' },
    ]);
  });

  it.each([
    ['s3://m/clip', ['s3://m/clip-1', 's3://m/clip-2']],
    ['s3://m/x/clip.{n}', ['s3://m/x/clip.1', 's3://m/x/clip.2']],
    ['s3://m/v{n}/clip.mp4', ['s3://m/v1/clip.mp4', 's3://m/v2/clip.mp4']],
  ])('become different objects for the output %s', async (url, urls) => {
    const { deps, objects, job } = await scene();
    const made = await job(success(2));
    await deliverToObjects(made, toUrl(url, 2), options, deps, saver(deps, made, 1, 2));
    expect([...objects]).toEqual(urls);
  });

  it('are not uploaded again after an earlier run, whose leftovers are removed', async () => {
    const { deps, objects, pendingFiles, job } = await scene();
    const urls = ['s3://m/b-1.mp4', 's3://m/b-2.mp4'];
    const made = await job(success(2), ...urls.map((url): JobEvent => ({ type: 'file', file: fileAt(url) })));
    for (const url of urls) objects.add(url);
    // Creates lock files of downloads and uploads whose processes died before they claimed the locks.
    for (const each of pathsAt(await localPath(`${made.id}-{n}.mp4`, deps), 2)) {
      writeFileSync(each, content);
      for (const lock of [each, `${each}.upload`]) writeFileSync(`${lock}.part.json`, '');
    }
    const never = (): Promise<void> => Promise.reject(new Error('made again'));
    const output = toUrl('s3://m/b.mp4', 2);
    const saved = await deliverToObjects(made, output, options, deps, never);
    expect([saved.map((file) => file.path), pendingFiles()]).toEqual([urls, []]);
    await deliverToObjects(made, output, options, deps, never);
    expect(deps.notes).toEqual([]);
    objects.delete('s3://m/b-2.mp4');
    await expect(deliverToObjects(made, output, options, deps, never)).rejects.toThrow('made again');
  });

  it('are uploaded from the files that an earlier run kept, to any output, even if the gateway no longer has them', async () => {
    const { deps, objects, pendingFiles, job } = await scene();
    const made = await job(success(2));
    const saveTwo = saver(deps, made, 1, 2);
    objects.add('s3://m/b-2.mp4');
    await saveTwo(await localPath(`${made.id}-{n}.mp4`, deps));
    const output = toUrl('s3://m/c.mp4', 2);
    const saved = await deliverToObjects(made, output, options, deps, expired);
    expect(saved.map(({ path }) => path)).toEqual(['s3://m/c-1.mp4', 's3://m/c-2.mp4']);
    expect(pendingFiles()).toEqual([]);
    // A file elsewhere may be unmarked, and is never removed.
    const local = join(deps.uploadFolder, '..', 'own.mp4');
    const own = await job(success(1), { type: 'file', file: fileAt(local) });
    writeFileSync(local, content);
    await expect(deliverToObjects(own, toUrl('s3://m/d.mp4'), options, deps, expired)).rejects.toThrow(
      'gone',
    );
  });

  it('are kept and uploaded one by one: a stored result is not fetched, and a lost result does not affect the others', async () => {
    const { deps, objects, pendingFiles, job } = await scene();
    objects.add('s3://m/b-1.mp4');
    const made = await job(success(3), { type: 'file', file: fileAt('s3://m/b-1.mp4', { sample: 1 }) });
    const output = toUrl('s3://m/b.mp4', 3);
    const stored: (string | undefined)[] = [];
    const failing = deliverToObjects(made, output, options, deps, async (path, saved) => {
      stored.push(...saved.map((file) => file?.path));
      await saver(deps, made, 3)(path);
      return expired();
    });
    await expect(failing).rejects.toMatchObject({ code: 'result_unavailable' });
    expect(stored).toEqual(['s3://m/b-1.mp4', undefined, undefined]);
    expect([[...objects], pendingFiles()]).toEqual([['s3://m/b-1.mp4', 's3://m/b-3.mp4'], []]);
  });

  it('have the names that were checked before payment if fewer arrive than were requested', async () => {
    const { deps, job } = await scene();
    const made = await job(success(1));
    const output = toUrl('s3://m/b.mp4', 2);
    const saved = await deliverToObjects(made, output, options, deps, saver(deps, made, 1));
    expect(saved.map(({ path }) => path)).toEqual(['s3://m/b-1.mp4']);
    expect(await deliverToObjects(made, output, options, deps, expired)).toEqual(saved);
  });

  it("are fetched again if the gateway's earlier response listed none", async () => {
    const { deps, job } = await scene();
    const fetched = deliverToObjects(await job(success(0)), toUrl('s3://m/b.mp4'), options, deps, expired);
    await expect(fetched).rejects.toMatchObject({ code: 'result_unavailable' });
  });

  it('are reported as changed if they are damaged before they are uploaded', async () => {
    const { deps, job } = await scene();
    const made = await job(success(1));
    const damaged = deliverToObjects(made, toUrl('s3://m/b.mp4'), options, deps, async (path) => {
      await saver(deps, made)(path);
      writeFileSync(pathsAt(path, 1)[0] ?? '', 'y');
    });
    const next = ['mgw', 'video', 'c', 'fetch', made.id, '-o', 's3://m/b.mp4'];
    await expect(damaged).rejects.toMatchObject({ code: 'local_io', charged: 'yes', next });
  });

  it('are uploaded unmarked with a note if an earlier run kept them without a mark', async () => {
    const { deps, objects, job } = await scene();
    const made = await job(success(1));
    await saver(deps, made)(await localPath(`${made.id}-{n}.mp4`, deps));
    await deliverToObjects(made, toUrl('s3://m/b.mp4'), { ...options, mark: true }, deps, expired);
    expect(deps.notes).toEqual([savedText]);
    const marked = await job(success(1), {
      type: 'file',
      file: fileAt('s3://m/c.mp4', { provenance: ['xmp'] }),
    });
    objects.add('s3://m/c.mp4');
    await deliverToObjects(marked, toUrl('s3://m/c.mp4'), { ...options, mark: true }, deps, expired);
    expect(deps.notes).toEqual([savedText]);
  });

  it('are passed to the store with the start times of earlier uploads of the same object', async () => {
    const { deps, calls, job } = await scene();
    const since = '2026-11-22T10:00:00.000Z';
    const begun = (url: string): JobEvent => ({ type: 'uploading', url, since });
    const made = await job(success(1), begun('s3://m/other.mp4'));
    // Another process begins this upload after this process has read the job.
    await deps.ledger.append(made.id, begun('s3://m/a.mp4'));
    await deliverToObjects(made, toUrl('s3://m/a.mp4'), options, deps, saver(deps, made));
    expect(calls).toEqual(['put s3://m/a.mp4 x false 1']);
  });

  it('are saved by one process at a time, because processes with different URLs use the same local files', async () => {
    const duringUpload: string[] = [];
    const { deps, pendingFiles, job } = await scene(() =>
      Promise.resolve(void duringUpload.push(...pendingFiles())),
    );
    const made = await job(success(1));
    await deliverToObjects(made, toUrl('s3://m/a.mp4'), options, deps, saver(deps, made));
    expect(duringUpload).toContain(`${made.id}.part.json`);
    expect(pendingFiles()).toEqual([]);
  });

  it('become a single object if two processes upload a file and the first process removes the file', async () => {
    const { deps, calls, pendingFiles, job } = await scene();
    const made = await job(success(1));
    const path = await localPath(`${made.id}-1.mp4`, deps);
    writeFileSync(path, 'x');
    const object = fileAt('s3://m/a.mp4');
    expect(await upload(made, fileAt(path), object.path, options, deps)).toEqual(object);
    expect(await upload(made, fileAt(path), object.path, options, deps)).toEqual(object);
    expect([calls.length, pendingFiles(), deps.notes]).toEqual([1, [], []]);
  });
});

describe('an upload that fails', () => {
  it.each<[string, MgwError, boolean, string[], string?]>([
    [
      'because of the store',
      new MgwError('store', 'No answer.', { exit: 'unavailable' }),
      true,
      ['s3://m/a.mp4', '--force'],
    ],
    ['because of another object', new MgwError('output_exists', 'It exists.'), true, ['s3://m/a-2.mp4']],
    [
      "because of another object at the job's output",
      new MgwError('output_exists', 'It exists.'),
      true,
      ['s3://m/v{n}/a-2.mp4'],
      's3://m/v{n}/a.mp4',
    ],
    ['because of the disk', new MgwError('local_io', 'No space.'), false, ['s3://m/a.mp4']],
  ])(
    'keeps the paid file if it fails %s, and the error suggests the command that uploads the file',
    async (_, thrown, isNamed, output, jobOutput) => {
      const { deps, pendingFiles, job } = await scene(() => Promise.reject(thrown));
      const made = await job(success(1));
      const path = await localPath(`${made.id}-1.mp4`, deps);
      writeFileSync(path, 'x');
      const force = output.includes('--force');
      const failing = upload(made, fileAt(path), 's3://m/a.mp4', { ...options, force, jobOutput }, deps);
      const error: unknown = await failing.catch((reason: unknown) => reason);
      expect(error).toMatchObject({
        ...{
          code: thrown.code,
          exitCode: thrown.exitCode,
          charged: 'yes',
          retry: 'resume',
          job: { id: made.id },
        },
        next: ['mgw', 'jobs', 'fetch', made.id, '-o', ...output],
      });
      expect((error as Error).message.includes(path)).toBe(isNamed);
      expect(pendingFiles()).toEqual([path.slice(deps.uploadFolder.length + 1)]);
    },
  );

  it('throws the original error if the reason is unexpected', async () => {
    const bug = new Error('bug');
    const { deps, job } = await scene(() => Promise.reject(bug));
    const made = await job(success(1));
    await expect(
      deliverToObjects(made, toUrl('s3://m/a.mp4'), options, deps, saver(deps, made)),
    ).rejects.toBe(bug);
  });
});

it('the folder for uploads is checked before payment', async () => {
  const { deps } = await scene();
  writeFileSync(deps.uploadFolder, '');
  await expect(localPath('x.mp4', deps)).rejects.toMatchObject({
    code: 'local_io',
    charged: 'no',
  });
});

it('copies left by dead processes do not prevent the use of the upload folder', async () => {
  const { deps } = await scene();
  const path = await localPath('x.mp4', deps);
  mkdirSync(join(deps.uploadFolder, 'copy-a.part.json'));
  expect(await localPath('x.mp4', deps)).toBe(path);
});

describe('speech that is saved as an object', () => {
  const sinkAt = (deps: Deps, url: string, force = false): ObjectSink =>
    new ObjectSink(url, force, deps, {
      target: join(deps.uploadFolder, 'speech.mp3'),
      part: join(deps.uploadFolder, 'parts', 'speech.part'),
      mime: 'audio/mpeg',
    });

  it('is refused before payment if its object exists', async () => {
    const { deps, calls, objects } = await scene();
    objects.add('s3://m/a.mp3');
    for (const force of [false, true])
      await expect(sinkAt(deps, 's3://m/a.mp3', force).open()).rejects.toMatchObject({
        code: 'output_exists',
      });
    expect(calls).toEqual(['check s3://m/a.mp3 false', 'check s3://m/a.mp3 true']);
  });

  it('may replace the local file of an earlier run', async () => {
    const { deps } = await scene();
    await localPath('x.mp3', deps);
    const sink = sinkAt(deps, 's3://m/a.mp3');
    writeFileSync(sink.target, 'x');
    await sink.open();
    await sink.discard();
  });

  it("is found in the store as its job's object, regardless of the job's id", async () => {
    const { deps, objects } = await scene();
    const urls = [
      's3://m/job_1.mp3',
      's3://n/job_3.mp3',
      's3://m/job_4.wav',
      '/m/job_5.mp3',
      's3://m/job_2.mp3',
    ];
    const files = urls.map((url) => fileAt(url));
    const recovered = async (url: string): Promise<string | undefined> =>
      (await sinkAt(deps, url).recover(files))?.file?.path;
    expect(await recovered('s3://m/{id}.mp3')).toBeUndefined();
    for (const url of urls.slice(1)) objects.add(url);
    expect(await recovered('s3://m/{id}.mp3')).toBe('s3://m/job_2.mp3');
    expect(await recovered('s3://m/job_4.wav')).toBe('s3://m/job_4.wav');
    expect(await recovered('s3://m/job_1.mp3')).toBeUndefined();
  });
});
