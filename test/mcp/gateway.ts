import { expect } from 'vitest';
import type { User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { type Answer, httpServer, type HttpServer, sendJson } from '../support/servers.ts';

const model = 'vendor-h3-mini';

/** The arguments, without a key, for a video that costs 5 credits. */
export const video = { model, prompt: 'a boat', duration: 5 };

/** Starts a Protocol C gateway that lists one model. `onPost` responds to submissions. */
export async function gateway(onPost?: Answer): Promise<HttpServer & { posts: () => number }> {
  const server: HttpServer = await httpServer((seen, response) => {
    if (seen.method === 'POST' && onPost !== undefined) onPost(seen, response);
    else if (seen.method === 'POST') sendJson(response, { task_id: server.create(), status: 'queued' });
    else if (seen.path === '/v1/models') sendJson(response, { data: [{ id: model, protocol: 'c' }] });
    else sendJson(response, { id: 'task_0001', status: 'queued' });
  });
  return Object.assign(server, {
    posts: () => server.requests.filter(({ method }) => method === 'POST').length,
  });
}

/**
 * Starts a gateway whose responses to submissions the test controls. `next` resolves with a function that accepts the
 * next submission.
 */
export async function slowGateway(): Promise<{
  server: Awaited<ReturnType<typeof gateway>>;
  next: () => Promise<() => void>;
}> {
  const waiting: (() => void)[] = [];
  const asking: ((accept: () => void) => void)[] = [];
  const server = await gateway((_, response) => {
    const accept = (): void => sendJson(response, { task_id: server.create(), status: 'queued' });
    const ask = asking.shift();
    if (ask === undefined) waiting.push(accept);
    else ask(accept);
  });
  const next = (): Promise<() => void> =>
    new Promise((resolve) => {
      const accept = waiting.shift();
      if (accept === undefined) asking.push(resolve);
      else resolve(accept);
    });
  return { server, next };
}

/** Returns a user of the gateway at `url` who has set a price of 1 per second. */
export async function userOf(url: string): Promise<User> {
  const user = userHere(url);
  await user.run(['config', 'set', `prices.c.${model}`, 'second=1']);
  return user;
}

/** Returns a suggested command without the prefix that sets the user's folders. Fails if there is no such prefix. */
export function withoutPrefix({ env }: User, command: readonly string[] = []): string[] {
  const prefix = ['MGW_STATE_DIR', 'MGW_CONFIG_DIR'].map((name) => `${name}=${env[name]}`);
  expect(command.slice(0, 3)).toEqual(['env', ...prefix]);
  return command.slice(3);
}
