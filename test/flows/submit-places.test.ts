import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { inFolder, submitVideo, videoOrder, type VideoSubmission } from '../../src/flows/submit-video.ts';
import type { FlowDeps } from '../../src/flows/settings.ts';
import type { GatewayClient } from '../../src/http/client.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Observation, Protocol } from '../../src/protocols/protocol.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { flowDeps } from './flow-deps.ts';

const bodyOfC = { model: 'vendor-h3', prompt: 'a boat' };
const bodyOfA = { model: 'veo-3', instances: [{ prompt: 'a boat' }], parameters: { sampleCount: 2 } };
const wish = (more: Partial<VideoSubmission>): VideoSubmission => ({
  ...{ ask: 'file', force: false, fresh: false, sidecar: false },
  ...{ deadline: { remainingMs: () => Infinity }, ...more },
});
const videoOf = (protocol: Protocol): Parameters<typeof submitVideo>[0] => {
  const body = protocol === a ? bodyOfA : bodyOfC;
  return { protocol, body, userBody: body, exchange: protocol.submission(body), advice: [] };
};

/** Checks a video's output paths before payment. */
async function check(more: Partial<VideoSubmission>, protocol: Protocol = c): Promise<string[]> {
  const calls: string[] = [];
  const store: Partial<ObjectStore> = {
    checkFree: (url, force) => {
      calls.push(`${url} ${force}`);
      return Promise.resolve();
    },
  };
  const deps = { objects: () => Promise.resolve(store as ObjectStore) };
  await videoOrder(videoOf(protocol), wish(more), deps).checkBeforePaying?.();
  return calls;
}

it('a folder in a bucket is not created on this machine', async () => {
  const target = { kind: 'file', path: 's3://m/clips/' } as const;
  expect(await inFolder(target)).toBe(target);
});

describe('before payment, a video', () => {
  it('is checked against existing objects, and cannot have a sidecar in the store', async () => {
    const target = { kind: 'file', path: 's3://m/a.mp4' } as const;
    expect(await check({ target })).toEqual(['s3://m/a.mp4 false']);
    expect(await check({ target, force: true }, a)).toEqual(['s3://m/a-1.mp4 true', 's3://m/a-2.mp4 true']);
    await expect(check({ target, sidecar: true })).rejects.toMatchObject({ code: 'usage' });
  });

  it('is refused if its file or its sidecar exists', async () => {
    const folder = freshFolder();
    const path = join(folder, 'a.mp4');
    const target = { kind: 'file', path } as const;
    await check({});
    await check({ target: { kind: 'stdout' } });
    await check({ target, sidecar: true });
    writeFileSync(`${path}.json`, '');
    await check({ target });
    await expect(check({ target, sidecar: true })).rejects.toMatchObject({ code: 'output_exists' });
    writeFileSync(path, '');
    await expect(check({ target })).rejects.toMatchObject({ code: 'output_exists', charged: 'no' });
    await check({ target, force: true });
    const made: string[] = [];
    const makeFolder = (of: string): Promise<void> => Promise.resolve(void made.push(of));
    await expect(check({ target, makeFolder })).rejects.toMatchObject({ code: 'output_exists' });
    const own = { kind: 'file', path: join(folder, '{job}', 'a.mp4') } as const;
    await check({ target: own, makeFolder });
    await check({ target: { kind: 'stdout' }, makeFolder });
    expect(made).toEqual([path]);
    for (const name of ['v1', 'v2']) mkdirSync(join(folder, name));
    await check({ target: { kind: 'file', path: join(folder, 'v{n}', 'b.mp4') }, makeFolder }, a);
    expect(made.slice(1)).toEqual(['v1/b.mp4', 'v2/b.mp4'].map((name) => join(folder, name)));
  });
});

describe('after acceptance, a video', () => {
  const client = {
    exchange: async (_: unknown, options: { onConnected?: () => Promise<void> }) => {
      await options.onConnected?.();
      return { status: 200, headers: {}, text: '{"task_id":"task_1","status":"queued"}', complete: true };
    },
  } as unknown as GatewayClient;
  const submit = async (makeFolder: (path: string) => Promise<void>, path: string): Promise<unknown> => {
    const deps: FlowDeps = await flowDeps(freshFolder(), { client });
    const target = { kind: 'file', path } as const;
    const request = wish({ ask: 'accept', target, makeFolder });
    return submitVideo(videoOf(c), request, deps).catch((error: unknown) => error);
  };

  it('is saved in a folder named after the job', async () => {
    const [folder, made] = [freshFolder(), [] as string[]];
    const ran = await submit(
      (path) => Promise.resolve(void made.push(path)),
      join(folder, '{job}/{job}.mp4'),
    );
    const { job } = ran as { job: { id: string } };
    expect(made).toEqual([join(folder, `${job.id}/${job.id}.mp4`)]);
    expect(existsSync(join(folder, job.id))).toBe(false);
  });

  const finishedVideo = async (): Promise<[typeof client, Parameters<typeof submitVideo>[0]]> => {
    const { url } = await httpServer((_, response) => response.writeHead(200).end('boat'));
    const results = [
      { sources: [{ kind: 'url', url: `${url}/1.mp4` }] },
    ] as unknown as Observation['results'];
    const protocol: Protocol = {
      ...c,
      readQuery: () => ({ kind: 'observation', state: 'succeeded', nativeStatus: 'done', results }),
    };
    return [{ ...client, baseUrl: new URL(url) }, videoOf(protocol)];
  };

  it('has a sidecar with the time of its end, but only if a sidecar is requested', async () => {
    const [own, video] = await finishedVideo();
    const path = join(freshFolder(), 'a.mp4');
    for (const sidecar of [false, true]) {
      const deps = await flowDeps(freshFolder(), { client: own, clock: systemClock, pollIntervalMs: 1 });
      const target = { kind: 'file', path } as const;
      await submitVideo(video, wish({ target, force: true, sidecar }), deps);
      expect(existsSync(`${path}.json`)).toBe(sidecar);
    }
    expect(JSON.parse(readFileSync(`${path}.json`, 'utf8'))).toMatchObject({
      finished_at: expect.any(String) as string,
    });
  });

  it("does not replace another program's file with its sidecar, even if the job is resumed", async () => {
    const [own, video] = await finishedVideo();
    const folder = freshFolder();
    const deps = await flowDeps(folder, { client: own, clock: systemClock, pollIntervalMs: 1 });
    const save = (name: string, more: Partial<VideoSubmission>): Promise<unknown> =>
      submitVideo(
        video,
        wish({ target: { kind: 'file', path: join(folder, name) }, key: 'k', ...more }),
        deps,
      );
    await save('a.mp4', {});
    writeFileSync(join(folder, 'b.mp4.json'), 'mine');
    const expected = { code: 'output_exists', charged: 'yes', retry: 'resume' };
    await expect(save('b.mp4', { sidecar: true })).rejects.toMatchObject(expected);
    expect(readFileSync(join(folder, 'b.mp4.json'), 'utf8')).toBe('mine');
    await save('b.mp4', { sidecar: true, force: true });
    expect(readFileSync(join(folder, 'b.mp4.json'), 'utf8')).not.toBe('mine');
  });

  it('is not saved if its folder cannot be created (exit 10), and the error suggests how to save it elsewhere', async () => {
    const failing = new MgwError('local_io', 'No space.');
    const error = (await submit(() => Promise.reject(failing), '/x/{job}.mp4')) as MgwError;
    expect(error).toMatchObject({ exitCode: 10, charged: 'yes', retry: 'resume' });
    expect(error.next).toEqual(['mgw', 'video', 'c', 'fetch', error.job?.id, '-o', './']);
    const bug = new Error('bug');
    expect(await submit(() => Promise.reject(bug), '/x/{job}.mp4')).toBe(bug);
  });
});
