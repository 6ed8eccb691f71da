import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { hasPostgres, PostgresServer } from '../support/postgres.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

const old = '2020-01-01T00:00:00.000Z';

interface Scene {
  user: User;
  store: S3Server;
  /** Makes the gateway report all tasks as ended. */
  end: () => void;
  /** Puts an object into the store, as if an earlier run had uploaded it. Returns the object's URL. */
  upload: (content: string, extension?: string) => string;
}

async function scene(prefix = "my/it's"): Promise<Scene> {
  const store = await s3Server();
  let status = 'queued';
  const gateway: HttpServer = await httpServer((seen, response) => {
    if (seen.method === 'POST') sendJson(response, { task_id: gateway.create(), status: 'queued' });
    else sendJson(response, { status, fail_reason: 'the sea was calm' });
  });
  const user = userHere(gateway.url, account);
  configureStore(user, store.url, `s3://bucket/${prefix}`);
  const upload: Scene['upload'] = (content, extension = '.png') => {
    const hash = createHash('sha256').update(content).digest('hex');
    const path = `/bucket/${prefix.replace("'", '%27')}/${hash}${extension}`;
    store.objects.set(path, Buffer.from(content));
    store.modified.set(path, old);
    return `s3:/${decodeURIComponent(path)}`;
  };
  return { user, store, upload, end: () => (status = 'failure') };
}

async function submit({ user, store }: Scene, content: string): Promise<string> {
  writeFileSync(join(user.cwd, 'first.png'), content);
  const flags = ['-m', 'vendor-h3-mini', '-d', '5', '--image', 'first.png', '--json'];
  const ran = await user.run(['video', 'c', 'submit', content, ...flags]);
  expect(ran.code, ran.stderr).toBe(0);
  for (const path of store.objects.keys()) store.modified.set(path, old);
  return ran.json.job.id;
}

interface Listed {
  files: { url: string; name: string; bytes: number; uploaded_at: string; jobs: string[] }[];
}

const urls = (list: unknown): string[] => (list as Listed['files']).map(({ url }) => url);

describe('mgw store ls', () => {
  test('lists only uploads, from every page, with their sizes and jobs', async () => {
    const own = await scene();
    const { user, store, upload } = own;
    store.pageSize = 2;
    const job = await submit(own, '<svg/>');
    const uploads = ['one', 'two', 'three', 'four'].map((content) => upload(content));
    store.objects.set('/bucket/my/it%27s/notes.txt', Buffer.from('not of mgw'));
    store.objects.set(`/bucket/my/it%27s/deep/${'0'.repeat(64)}.png`, Buffer.from('not of mgw'));
    store.objects.set(`/bucket/${'0'.repeat(64)}.png`, Buffer.from('not of mgw'));
    const { files } = (await user.run(['store', 'ls', '--json'])).json as unknown as Listed;
    expect(files).toHaveLength(5);
    expect(files.map(({ url }) => url)).toEqual(expect.arrayContaining(uploads));
    expect(files.filter(({ jobs }) => jobs.length > 0)).toMatchObject([
      { name: expect.stringMatching(/^sha256:/) as string, bytes: 6, uploaded_at: old, jobs: [job] },
    ]);
    const text = await user.run(['store', 'ls']);
    expect(text.stdout).toMatch(new RegExp(`6 B +\\S+ ago +${job}`));
    expect(text.stdout + text.stderr).not.toMatch(/X-Amz|store-secret/);
  });

  test('reports that it cannot list the uploads of a store.command', async () => {
    const { user } = await scene();
    await user.run(['config', 'unset', 'store']);
    expect((await user.run(['store', 'ls', '--json'])).json).toMatchObject({ exit_code: 2 });
    await user.run(['config', 'set', 'store.command', '--', 'true']);
    const listed = await user.run(['store', 'ls', '--json']);
    expect(listed.json).toMatchObject({ exit_code: 2, error: { code: 'config' } });
  });
});

describe('mgw store prune', () => {
  test('removes only the files that no open job needs', async () => {
    const own = await scene();
    const { user, store, upload, end } = own;
    store.pageSize = 2;
    await submit(own, '<svg/>');
    const orphans = [upload('one'), upload('two'), upload('three')].sort();
    const other = `/bucket/my/it%27s/deep/${'0'.repeat(64)}.png`;
    store.objects.set(other, Buffer.from('not of mgw'));
    store.modified.set(other, old);
    const dry = await user.run(['store', 'prune', '--dry-run', '--json']);
    expect(dry.json).toMatchObject({ ok: true, dry_run: true, kept: { job: 1 } });
    expect(urls(dry.json['removed']).sort()).toEqual(orphans);
    expect(store.objects.size).toBe(5);
    const pruned = await user.run(['store', 'prune', '--yes']);
    expect(pruned.stdout.trim().split('\n').sort()).toEqual(orphans);
    expect(pruned.stderr).toContain('kept: 1 needed by open jobs');
    expect(store.objects.size).toBe(2);
    end();
    await user.run(['jobs', 'wait', '@last', '--poll-interval', '50ms']);
    await user.run(['store', 'prune', '--yes']);
    expect([...store.objects.keys()]).toEqual([other]);
  });

  test('removes nothing without --yes, and keeps files that are newer than --older-than', async () => {
    const { user, store, upload } = await scene();
    upload('one');
    const refused = await user.run(['store', 'prune', '--older-than', '7d', '--json']);
    expect(refused.json).toMatchObject({
      exit_code: 2,
      error: { next: ['mgw', 'store', 'prune', '--older-than', '7d', '--yes'] },
    });
    for (const path of store.objects.keys()) store.modified.set(path, new Date().toISOString());
    const pruned = await user.run(['store', 'prune', '--older-than', '1h', '--yes', '--json']);
    expect(pruned.json).toMatchObject({ removed: [], kept: { newer: 1 } });
    expect(store.objects.size).toBe(1);
  });

  test('keeps a file that a job started to use after the listing', async () => {
    const own = await scene();
    const { user, store } = own;
    await user.run(['jobs', 'rm', await submit(own, '<svg/>'), '--force']);
    own.upload('<svg>another</svg>');
    const kept = [...store.objects.keys()].sort()[1] ?? '';
    const content = store.objects.get(kept)?.toString() ?? '';
    // A job that begins while the first file is being removed uses the second file.
    store.faults.push((request, response) => {
      if (request.method !== 'DELETE') return false;
      void submit(own, content).then(() => response.writeHead(204).end());
      return true;
    });
    const pruned = await user.run(['store', 'prune', '--yes', '--json']);
    expect(pruned.json).toMatchObject({ kept: { job: 1 } });
    expect(store.objects.get(kept)?.toString()).toBe(content);
  });

  test('keeps a file that may belong to an open job', async () => {
    const own = await scene();
    const { user, store, upload } = own;
    await submit(own, '<svg/>');
    const [png, mp4] = [upload('a frame'), upload('a film', '.mp4')];
    const frame = `sha256:${'1'.repeat(64)}.mp4#last`;
    const record = { ...(await user.run(['jobs', 'export'])) }.stdout.replace(
      /sha256:[\da-f]{64}\.png/g,
      frame,
    );
    await user.run(['jobs', 'rm', '@last', '--force']);
    await user.run(['jobs', 'import', '-'], { stdin: record });
    const pruned = await user.run(['store', 'prune', '--yes', '--json']);
    expect(urls(pruned.json['removed'])).toContain(mp4);
    expect(urls(pruned.json['removed'])).not.toContain(png);
    expect(store.objects.size).toBeGreaterThan(0);
  });
});

describe.skipIf(!hasPostgres)('mgw store prune with a shared ledger', () => {
  let server: PostgresServer;
  beforeAll(async () => void (server = await PostgresServer.open()));
  afterAll(() => server.close());

  test('keeps the files of queued rows, because no worker could upload them again', async () => {
    const { user, store } = await scene();
    user.env['MGW_STATE'] = server.url(await server.database());
    expect((await user.run(['state', 'init'])).code).toBe(0);
    writeFileSync(join(user.cwd, 'first.png'), '\0a boat');
    writeFileSync(
      join(user.cwd, 'rows.csv'),
      `id,protocol,model,duration,prompt,image\nboat,c,vendor-h3-mini,5,a boat,${join(user.cwd, 'first.png')}\n`,
    );
    const queued = await user.run(['batch', 'enqueue', 'rows.csv', '--allow-files', user.cwd]);
    expect(queued.code, queued.stderr).toBe(0);
    expect(store.objects.size).toBe(1);
    for (const path of store.objects.keys()) store.modified.set(path, old);
    const pruned = await user.run(['store', 'prune', '--yes', '--json']);
    expect(pruned.json).toMatchObject({ removed: [], kept: { queue: 1 } });
    expect(store.objects.size).toBe(1);
  });
});
