import { describe, expect, it } from 'vitest';
import type { Json } from '../../../src/json.ts';
import type { User } from '../../support/cli.ts';
import { userHere } from '../../support/one-process.ts';
import { httpServer, says } from '../../support/servers.ts';

const entries = [
  { id: 'vendor-h3', supported_endpoint_types: null },
  { id: 'Video-B', model_versions: ['1.0', { version: '2.0' }], protocol: 'B' },
  { id: 'text-1', supported_endpoint_types: ['openai'] },
];

async function userOf(answer: Json, status = 200): Promise<User> {
  const server = await httpServer();
  server.answers.push(...Array.from({ length: 4 }, () => says(answer, status)));
  return userHere(server.url);
}

describe('mgw models', () => {
  it("prints a table with each model's protocol and versions", async () => {
    const user = await userOf({ success: true, data: entries });
    const { stdout, stderr } = await user.run(['models']);
    expect(stderr).toBe('');
    expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['id', 'protocol', 'versions', 'endpoints'],
      ['Video-B', 'b', '1.0, 2.0', 'B'],
      ['text-1', '-', '-', 'openai'],
      ['vendor-h3', 'c', '-', '-'],
      [''],
    ]);
  });

  it('prints the configured prices in the configured currency, sorted by the maximum cost of a clip', async () => {
    const video = { supported_endpoint_types: ['openai-video'] };
    const data = ['vendor-h3', 'vendor-h3-mini', 'vendor-h3-base', 'text-1'].map((id) => ({
      id,
      ...(id !== 'text-1' && video),
    }));
    const user = await userOf({ data });
    expect((await user.run(['models', '--cost', '5s'])).stderr).toContain('mgw config set prices.');
    for (const [name, value] of [
      ['currency', 'USD'],
      ['prices.c.vendor-h3', 'second=0.4; resolution=2K: second=0.9'],
      ['prices.c.vendor-h3-mini', 'second=0.05'],
    ] as const)
      expect((await user.run(['config', 'set', name, value])).code).toBe(0);
    const columns = async (...args: string[]): Promise<string[][]> =>
      (await user.run(['models', ...args])).stdout.split('\n').map((line) => line.split(/ {2,}/));
    expect(await columns()).toEqual([
      ['id', 'protocol', 'versions', 'price (USD)', 'endpoints'],
      ['text-1', '-', '-', '-', '-'],
      ['vendor-h3', 'c', '-', 'second=0.4 …', 'openai-video'],
      ['vendor-h3-base', 'c', '-', '-', 'openai-video'],
      ['vendor-h3-mini', 'c', '-', 'second=0.05', 'openai-video'],
      [''],
    ]);
    const costs = (found: string[][]): string[][] =>
      found.slice(1, -1).map((row) => [row[0] ?? '', row[3] ?? '']);
    expect(costs(await columns('--cost', '5s 2K'))).toEqual([
      ['vendor-h3-mini', '0.25'],
      ['vendor-h3', '4.5'],
      ['vendor-h3-base', '-'],
    ]);
    expect((await user.run(['models', '--cost', '5s 720p', '--json'])).json['models']).toMatchObject([
      { id: 'vendor-h3-mini', prices: [{ protocol: 'c', cost: '0.25' }] },
      { id: 'vendor-h3', prices: [{ protocol: 'c', cost: '2' }] },
      { id: 'vendor-h3-base', prices: [] },
    ]);
  });

  it.each(['five', '5.5s', '0s', '5', '5s 720q', '5s 6s'])('refuses the clip %j', async (clip) => {
    const { code, stderr } = await userHere().run(['models', '--cost', clip]);
    expect(code).toBe(2);
    expect(stderr).toContain(
      `--cost ${clip}: must be a length in whole seconds, a resolution and a ratio, each at most once, such as "5s 720p 16:9".`,
    );
  });

  it('lists the models of one protocol, and reports if the gateway marks no model for that protocol', async () => {
    const user = await userOf({ data: entries });
    const some = await user.run(['models', '--protocol', 'b', '--json']);
    expect(some.json['models']).toMatchObject([{ id: 'Video-B', model_versions: ['1.0', '2.0'] }]);
    const none = await user.run(['models', '--protocol', 'a']);
    expect([none.code, none.stdout]).toEqual([0, '']);
    expect(none.stderr).toBe(
      'No model is marked for Protocol A. The list without --protocol contains 3 models.\n',
    );
  });

  it('reports a refused key, and suggests the next command', async () => {
    const run = await (await userOf({ error: { message: 'Invalid token' } }, 401)).run(['models', '--json']);
    expect(run.json).toMatchObject({
      exit_code: 3,
      error: { code: 'auth', next: ['mgw', 'auth', 'status'] },
    });
    expect(run.json.error.message).toMatch(
      /^Invalid token\. Sent to 127\.0\.0\.1:\d+ with the key from environment MGW_API_KEY\.$/,
    );
  });

  it('does not say that a model is missing if the list is incomplete, and shows how to list the rest', async () => {
    const server = await httpServer();
    server.answers.push(says({ data: [{ id: 'one' }], has_more: true, last_id: 'one' }), says({}, 400));
    const run = await userHere('https://g.example').run([
      '--base-url',
      server.url,
      '--json',
      'models',
      'two',
    ]);
    expect(run.stderr).toContain(`mgw --base-url ${server.url} api GET '/v1/models?after_id=one'`);
    expect(run.json).toMatchObject({
      exit_code: 6,
      error: { message: 'The part of the model list that could be fetched does not contain two.' },
    });
  });
});
