import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

const megabyte = 1024 * 1024;

interface Scene {
  user: User;
  store: S3Server;
  /** Serves assets at `/TYPE/SUBTYPE?bytes=N&status=S`. With `refuses=HEAD`, it accepts only GET. */
  files: HttpServer;
  posts: () => number;
}

async function scene(): Promise<Scene> {
  const store = await s3Server();
  const files = await httpServer((seen, response) => {
    const { pathname, searchParams: query } = new URL(seen.path, 'http://files');
    const bytes = Number(query.get('bytes') ?? 1000);
    const status = Number(query.get('status') ?? 200);
    const isRefused = query.get('refuses') === seen.method;
    if (query.has('to')) return response.writeHead(302, { location: query.get('to') ?? '' }).end();
    const head = { 'content-type': pathname.slice(1), 'content-length': bytes };
    if (seen.method === 'HEAD' || status !== 200)
      return response.writeHead(isRefused ? 405 : status, head).end();
    return response
      .writeHead(206, { ...head, 'content-length': 1, 'content-range': `bytes 0-0/${bytes}` })
      .end('x');
  });
  const gateway: HttpServer = await httpServer((_, response) =>
    sendJson(response, { task_id: gateway.create(), status: 'queued' }),
  );
  const user = userHere(gateway.url, account);
  configureStore(user, store.url, 's3://bucket/inputs');
  const posts = (): number => gateway.requests.filter(({ method }) => method === 'POST').length;
  return { user, store, files, posts };
}

// Uses `--no-check`, because the local checks refuse the loopback addresses of the assets.
const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '5', '--no-check', '--json'];
const checked = (...flags: string[]): string[] => [...submit, '--check-assets', ...flags];

describe('--check-assets', () => {
  test('allows a submission if the asset can be fetched and is an image or of a generic type', async () => {
    const { user, files, posts } = await scene();
    for (const path of [
      '/image/png',
      '/x?to=/image/png',
      '/image/jpeg?refuses=HEAD',
      '/application/octet-stream',
    ]) {
      const before = posts();
      const ran = await user.run(checked('--image', files.url + path));
      expect(ran.code, ran.stdout).toBe(0);
      expect(posts(), path).toBe(before + 1);
    }
  });

  test('prevents the payment if an image is missing, empty, too large or a web page', async () => {
    const { user, files, posts } = await scene();
    const large = `/image/png?bytes=${21 * megabyte}`;
    for (const [path, words] of [
      ['/image/png?status=404', 'HTTP 404'],
      ['/text/html', 'its type is text/html'],
      [large, '21.0 MiB'],
      [`${large}&refuses=HEAD`, '21.0 MiB'],
      ['/image/png?bytes=0', 'it is empty'],
    ] as const) {
      const ran = await user.run(checked('--image', `${files.url}${path}`));
      expect(ran.json).toMatchObject({ exit_code: 2, error: { code: 'usage', charged: 'no' } });
      expect(ran.json.error.message).toContain(words);
      expect(ran.json.error.message).not.toContain('bytes=');
    }
    expect(posts()).toBe(0);
  });

  test('reports every invalid image and audio file', async () => {
    const { user, files, posts } = await scene();
    const audio = `${files.url}/audio/mpeg?bytes=${51 * megabyte}`;
    const ran = await user.run(
      checked('--reference-image', `${files.url}/text/html`, '--reference-audio', audio),
    );
    expect(ran.json.error.message).toMatch(/image .*text\/html[^]*audio .*51\.0 MiB/);
    expect(posts()).toBe(0);
    const dry = await user.run(checked('--image', `${files.url}/text/html`, '--dry-run'));
    expect(dry.json).toMatchObject({ exit_code: 2 });
  });

  test('sends the store a HEAD request for an uploaded file', async () => {
    const { user, store, posts } = await scene();
    writeFileSync(join(user.cwd, 'first.png'), '\0an image');
    const ran = await user.run(checked('--image', 'first.png'));
    expect(ran.code, ran.stdout).toBe(0);
    expect(store.calls.filter((call) => call.startsWith('HEAD')).map((call) => call.slice(-3))).toEqual([
      '404',
      '200',
    ]);
    writeFileSync(join(user.cwd, 'large.png'), Buffer.alloc(21 * megabyte));
    const large = await user.run(checked('--image', 'large.png'));
    expect(large.json).toMatchObject({ exit_code: 2, error: { charged: 'no' } });
    expect(posts()).toBe(1);
  });

  test('reports the flag and the path of an invalid uploaded file', async () => {
    const { user, files } = await scene();
    writeFileSync(join(user.cwd, 'first.png'), '\0an image');
    await user.run(['config', 'unset', 'store']);
    await user.run(['config', 'set', 'store.command', '--', 'echo', `${files.url}/image/png?status=404`]);
    const ran = await user.run(checked('--image', 'first.png'));
    expect(ran.json.error.message).toBe(
      `--image ${join(user.cwd, 'first.png')}: it cannot be fetched: HTTP 404.`,
    );
  });

  test('is required for mgw to send any request to the servers of the assets', async () => {
    const { user, files } = await scene();
    expect((await user.run([...submit, '--image', `${files.url}/text/html`])).code).toBe(0);
    expect(files.requests).toHaveLength(0);
  });
});
