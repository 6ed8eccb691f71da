import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { LocalCopies, recoverObject } from '../../src/flows/local-copies.ts';
import type { FlowDeps } from '../../src/flows/settings.ts';
import type { JobFile } from '../../src/job.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { leaseOf } from '../support/lease.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { flowDeps } from './flow-deps.ts';

const content = Buffer.from('RIFF of a boat');
const endless = { remainingMs: () => Infinity };

function fileAt(path: string, of = content): JobFile {
  return { path, bytes: of.length, sha256: createHash('sha256').update(of).digest('hex') };
}

const statuses: Record<string, number> = { '/refused.wav': 404, '/busy.wav': 503 };

/**
 * Returns dependencies whose store serves `content` for every object, except objects called `gone`, and a function
 * that lists the upload folder.
 */
async function scene(): Promise<{ deps: FlowDeps; left: () => string[]; calls: string[] }> {
  const { url } = await httpServer(({ path }, response) =>
    response.writeHead(statuses[path] ?? 200, { 'content-type': 'audio/wav' }).end(content),
  );
  const calls: string[] = [];
  const store: Partial<ObjectStore> = {
    has: (path) => {
      calls.push(path);
      return Promise.resolve(!path.includes('gone'));
    },
    address: (path) => Promise.resolve(`${url}/${path.split('/').at(-1)}`),
  };
  const deps = await flowDeps(freshFolder(), {
    clock: systemClock,
    objects: () => Promise.resolve(store as ObjectStore),
  });
  return { deps, calls, left: () => (existsSync(deps.uploadFolder) ? readdirSync(deps.uploadFolder) : []) };
}

it('a local file is used directly and does not need a store', async () => {
  const deps = await flowDeps(freshFolder());
  const copies = new LocalCopies(deps, endless);
  expect(await copies.pathOf(fileAt('/films/boat.mp4'))).toBe('/films/boat.mp4');
  await copies.close();
});

it('an object is copied to a local file, and the copy is removed on close', async () => {
  const { deps, left } = await scene();
  const copies = new LocalCopies(deps, endless);
  const path = await copies.pathOf(fileAt('s3://media/boat.wav'));
  expect(readFileSync(path)).toEqual(content);
  // A partial copy of a killed process is not resumed.
  const notes = left().filter((name) => name.endsWith('.part.json'));
  expect(readFileSync(`${deps.uploadFolder}/${notes[0] ?? ''}`, 'utf8')).toContain('"durable":0');
  await copies.close();
  expect(left()).toEqual([]);
});

it('an object that was deleted or replaced is refused with exit 2, and no file remains', async () => {
  const { deps, left } = await scene();
  const copies = new LocalCopies(deps, endless);
  await expect(copies.pathOf(fileAt('s3://media/gone.wav'))).rejects.toMatchObject({ code: 'usage' });
  const other = fileAt('s3://media/boat.wav', Buffer.from('another boat..'));
  await expect(copies.pathOf(other)).rejects.toMatchObject({ code: 'usage' });
  await expect(copies.pathOf(fileAt('s3://media/refused.wav'))).rejects.toMatchObject({ code: 'usage' });
  await copies.close();
  expect(left()).toEqual([]);
});

it('a copy that is not finished at the deadline ends with exit 8', async () => {
  const { deps } = await scene();
  const copies = new LocalCopies(deps, { remainingMs: () => 0 });
  await expect(copies.pathOf(fileAt('s3://media/busy.wav'))).rejects.toMatchObject({ code: 'pending' });
  await copies.close();
});

it('copies of killed processes are removed before the next copy, but copies of live processes are not', async () => {
  const { deps: killed, left } = await scene();
  const copies = new LocalCopies({ ...killed, lease: leaseOf(currentOwner()) }, endless);
  const path = await copies.pathOf(fileAt('s3://media/boat.wav'));
  const copyOfKilled = await new LocalCopies(killed, endless).pathOf(fileAt('s3://media/boat.wav'));
  expect(existsSync(copyOfKilled)).toBe(true);
  await copies.pathOf(fileAt('s3://media/boat.wav'));
  expect([existsSync(copyOfKilled), existsSync(path)]).toEqual([false, true]);
  await copies.close();
  expect(left()).toEqual([]);
});

it('the first available candidate in the store is downloaded, and no copy remains', async () => {
  const { deps, left, calls } = await scene();
  const passed: JobFile[] = [];
  const recover = (files: readonly JobFile[]): Promise<object> => {
    passed.push(...files);
    expect(readFileSync(files[0]?.path ?? '')).toEqual(content);
    return Promise.resolve({});
  };
  const candidates = ['/films/a.wav', 's3://media/gone.wav', 's3://media/b.wav', 's3://media/c.wav'];
  const files = candidates.map((path) => fileAt(path));
  expect(await recoverObject(files, recover, deps, endless)).toEqual({});
  expect(passed).toMatchObject([{ sha256: fileAt('').sha256 }]);
  expect([...new Set(calls)]).toEqual(['s3://media/gone.wav', 's3://media/b.wav']);
  expect(left()).toEqual([]);
  expect(await recoverObject(files.slice(0, 2), recover, deps, endless)).toBeUndefined();
  expect(passed).toHaveLength(1);
});
