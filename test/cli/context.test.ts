import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { createContext, type Context } from '../../src/cli/context.ts';
import { onEnd } from '../support/clean-ups.ts';
import { canaryKey, newUser } from '../support/cli.ts';
import { httpServer, says } from '../support/servers.ts';

interface Opened {
  context: Context;
  /** Returns the text written to stderr since the last call. */
  stderrText: () => string;
}

function open(url: string): Opened {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const { env } = newUser(url);
  const context = createContext({ stdin, stdout, stderr, env }, { verbose: true });
  onEnd(() => context.close());
  return { context, stderrText: () => String(stderr.read() ?? '') };
}

it('a note never contains the API key once the key is known', async () => {
  const { context, stderrText } = open('http://127.0.0.1:9');
  await context.gateway();
  context.progress.note(`The gateway says: ${canaryKey}`);
  expect(stderrText()).toContain('The gateway says: [redacted]');
});

it('a printed request never contains the token in its URL', async () => {
  const server = await httpServer(says({}));
  const { context, stderrText } = open(server.url);
  const client = await context.client();
  await client.exchange(
    { method: 'GET', path: '/v1/files?page=2&signature=5ignature', headers: {}, body: undefined },
    { auth: { header: 'Authorization', scheme: 'Bearer' }, timeoutMs: 5000, maxBytes: 1000 },
  );
  expect(stderrText()).toContain('/v1/files?page=2&signature=[redacted]');
});

it('opening the store sets no deadline, because a batch or a server may run for longer than a single command', async () => {
  const { context } = open('http://127.0.0.1:9');
  await context.objects();
  expect((await context.client()).deadline?.remainingMs()).toBe(Infinity);
});
