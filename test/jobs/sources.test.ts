import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import { fetchResults } from '../../src/jobs/fetch.ts';
import type { JobEvent } from '../../src/job.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Protocol } from '../../src/protocols/protocol.ts';
import { jobWith } from '../flows/flow-deps.ts';
import { film } from '../support/film.ts';
import { type Answer, freshFolder, type HttpServer, httpServer, says, sendJson } from '../support/servers.ts';
import { TestClock } from '../support/test-clock.ts';
import { depsFor, key } from './harness.ts';

const video = film(4096);
const sendsVideo: Answer = (_, response) => {
  response.writeHead(200, { 'content-type': 'video/mp4' }).end(video);
};
const html: Answer = says('<html><title>App</title></html>', 200, { 'content-type': 'text/html' });
const expired: Answer = says({ error: { message: 'it has expired' } }, 404);
const redirect = (location: string): Answer => says('', 302, { location });

interface Ran {
  server: HttpServer;
  error?: MgwError;
  /** The names of the published files. */
  saved: string[];
}

/**
 * Fetches a finished Protocol C job. The result's first source responds with `content`. Its second source, the URL in
 * the status response, responds with each of `urls` in turn, then with the last one.
 */
async function fetched(content: Answer, ...urls: Answer[]): Promise<Ran> {
  const remaining = [...urls];
  const server = await httpServer((seen, response) => {
    if (seen.path.endsWith('/content')) content(seen, response);
    else if (seen.path === '/video')
      (remaining.length > 1 ? remaining.shift() : remaining[0])?.(seen, response);
    else sendJson(response, { task_id: 'task_1', status: 'completed', url: `${server.url}/video` });
  });
  const job = [{ type: 'accepted', handle: 'task_1' }] as const;
  return { server, ...(await fetchFrom(server, c, job)) };
}

async function fetchFrom(
  server: HttpServer,
  protocol: Protocol,
  events: readonly JobEvent[],
): Promise<Omit<Ran, 'server'>> {
  const state = freshFolder();
  const deps = { ...(await depsFor(server.url, state)), clock: new TestClock() };
  const job = await jobWith(deps.ledger, protocol.name, ...events);
  const path = join(state, 'boat.mp4');
  const outcome = await fetchResults(job, protocol, deps, {
    ...{ target: { kind: 'file', path }, force: false, key, trustedOrigins: [] },
    ...{ deadline: { remainingMs: () => 60_000 }, intervalMs: 10, isImmediate: true },
    toStdout: () => Promise.resolve(),
  }).catch((error: unknown) => error);
  const saved = readdirSync(state).filter((name) => name.endsWith('.mp4'));
  if (Array.isArray(outcome)) return { saved };
  if (!(outcome instanceof MgwError)) throw outcome;
  return { error: outcome, saved };
}

describe("a result's second source", () => {
  it.each<[string, Answer]>([
    ['HTML', html],
    ['JSON', says({ url: 'https://files.example/1.mp4' })],
    ['a server error in each attempt', says({ error: { message: 'cannot fetch the video' } }, 502)],
    [
      'a file with a content coding',
      says('x'.repeat(100), 200, { 'content-type': 'video/mp4', 'content-encoding': 'gzip' }),
    ],
    ['an empty file in each attempt', says('', 200, { 'content-type': 'video/mp4' })],
    ['a redirect to a private network', redirect('http://169.254.169.254/video')],
    ['a redirect loop', redirect('/v1/videos/task_1/content')],
  ])('is used if the first source returns %s', async (_, content) => {
    const { saved, error } = await fetched(content, sendsVideo);
    expect(error).toBeUndefined();
    expect(saved).toEqual(['boat.mp4']);
  });

  it('is used with a new URL if its first URL has expired and the first source returns HTML', async () => {
    expect(await fetched(html, expired, sendsVideo)).toMatchObject({ saved: ['boat.mp4'] });
  });

  it('does not hide the error of the first source if every URL of the second source has expired', async () => {
    const { error, server } = await fetched(says({ error: { message: 'try later' } }, 502), expired);
    expect(error).toMatchObject({ exitCode: 6, charged: 'yes', retry: 'resume' });
    expect(error?.message).toContain('try later');
    expect(server.requests.filter(({ path }) => path === '/video')).toHaveLength(4);
  });
});

it('a result that a later response no longer lists leads to exit 9, and the others are saved', async () => {
  const name = 'models/vendor-h3/operations/1';
  const server = await httpServer((seen, response) => {
    if (seen.path === '/video') {
      sendsVideo(seen, response);
      return;
    }
    const generatedSamples = [{ video: { uri: `${server.url}/video` } }];
    sendJson(response, { name, done: true, response: { generateVideoResponse: { generatedSamples } } });
  });
  const { error, saved } = await fetchFrom(server, a, [
    { type: 'accepted', handle: name },
    { type: 'finished', state: 'succeeded', native_status: '', results: 2 },
  ]);
  expect(error).toMatchObject({ exitCode: 9, charged: 'yes', retry: 'resume' });
  expect(error?.message).toMatch(/^1 of 2 files are saved.*no URL for file 2/);
  expect(saved).toEqual(['boat-1.mp4']);
});
