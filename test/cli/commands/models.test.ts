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
  it('prints a table with the protocol and the versions of each', async () => {
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

  it('takes those of a protocol, and says so if none is marked for it', async () => {
    const user = await userOf({ data: entries });
    const some = await user.run(['models', '--protocol', 'b', '--json']);
    expect(some.json['models']).toMatchObject([{ id: 'Video-B', model_versions: ['1.0', '2.0'] }]);
    const none = await user.run(['models', '--protocol', 'a']);
    expect([none.code, none.stdout]).toEqual([0, '']);
    expect(none.stderr).toBe('No model is marked for Protocol A; without --protocol there are 3.\n');
  });

  it('names a refused key, and the way on', async () => {
    const run = await (await userOf({ error: { message: 'Invalid token' } }, 401)).run(['models', '--json']);
    expect(run.json).toMatchObject({
      exit_code: 3,
      error: { code: 'auth', next: ['mgw', 'auth', 'status'] },
    });
    expect(run.json.error.message).toMatch(
      /^Invalid token\. Sent to 127\.0\.0\.1:\d+ with the key from environment MGW_API_KEY\.$/,
    );
  });
});
