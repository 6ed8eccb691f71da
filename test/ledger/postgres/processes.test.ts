import { expect, it } from 'vitest';
import { newUser, type Running, type User } from '../../support/cli.ts';
import { CuttingProxy } from '../../support/cutting-proxy.ts';
import { httpServer, sendJson, type HttpServer } from '../../support/servers.ts';
import { describePostgres, type PostgresPlace } from './place.ts';

const quickly = 120_000;

/** Starts a Protocol C gateway that accepts every submission and whose tasks never finish. */
async function gateway(): Promise<HttpServer & { creations: () => number }> {
  let count = 0;
  const server = await httpServer(({ method }, response) => {
    if (method === 'POST') count += 1;
    sendJson(response, { id: `task_${count}`, status: 'queued' });
  });
  return Object.assign(server, { creations: () => count });
}

function submission(prompt: string, ...more: string[]): string[] {
  return ['video', 'c', 'submit', prompt, '--model', 'vendor-h3', '--no-check', '--json', ...more];
}

describePostgres('on PostgreSQL,', (newPlace) => {
  /** Creates machines, each with its own home and state folder. */
  const machines = async (
    count: number,
    url: string,
    port?: number,
    lease = '30s',
  ): Promise<{ place: PostgresPlace; users: User[] }> => {
    const place = await newPlace();
    await place.open();
    const state = `${place.server.url(place.database, port)}?connect_timeout=8&lease=${lease}`;
    return { place, users: Array.from({ length: count }, () => newUser(url, { MGW_STATE: state })) };
  };

  it('ten processes on different machines are charged once for one key', { timeout: quickly }, async () => {
    const server = await gateway();
    const { users } = await machines(10, server.url);
    const runs = users.map((user) => user.run(submission('a paper boat', '--key', 'boat')));
    const results = await Promise.all(runs);
    expect(results.map(({ code }) => code)).toEqual(users.map(() => 0));
    expect(new Set(results.map(({ json }) => json.job.handle)).size).toBe(1);
    expect(server.creations()).toBe(1);
  });

  it(
    'a process sends nothing after being stopped for longer than its lease',
    { timeout: quickly },
    async () => {
      const server = await gateway();
      const place = await newPlace();
      await place.open();
      const proxy = await CuttingProxy.open(place.server.port);
      const stateOf = (port?: number): string =>
        `${place.server.url(place.database, port)}?connect_timeout=8&lease=2s`;
      const stopped = newUser(server.url, { MGW_STATE: stateOf(proxy.port) });
      const other = newUser(server.url, { MGW_STATE: stateOf() });
      const cut = proxy.cutAt({ at: /"sending"/, lose: 'answer' });
      const run: Running = stopped.start(submission('a paper boat'));
      await cut;
      // The database has recorded "sending", but the process has not received the response.
      run.child.kill('SIGSTOP');
      const states = async (): Promise<unknown> => {
        const { json } = await other.run(['jobs', 'ls', '--json']);
        return (json['jobs'] as { state: string }[])[0]?.state;
      };
      await expect.poll(states, { interval: 500 }).toBe('unknown');
      expect((await other.run(submission('a paper boat'))).code).toBe(7);
      run.child.kill('SIGCONT');
      expect((await run.result).code).toBe(6);
      expect(server.creations()).toBe(0);
      // The process's record resolved the doubt.
      expect(await states()).toBe('prepared');
      expect((await other.run(submission('a paper boat'))).code).toBe(0);
      expect(server.creations()).toBe(1);
    },
  );
});
