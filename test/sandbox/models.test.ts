import { expect, test } from 'vitest';
import { sandbox } from './harness.ts';

interface Entry {
  id: string;
  protocols: string[];
  model_versions?: string[];
}

test('the listing marks protocols, and gives versions to the models of Protocol B', async () => {
  const gateway = await sandbox();
  const answer = await gateway.call('GET', '/v1/models');
  const entries = answer.at('data') as Entry[];
  expect(answer.at('object')).toBe('list');
  expect(entries.filter(({ protocols }) => protocols.includes('c')).map(({ id }) => id)).toEqual([
    'vendor-h3',
    'vendor-h3-base',
    'vendor-h3-base-fast',
    'vendor-h3-mini',
  ]);
  for (const { protocols, model_versions: versions } of entries) {
    expect(versions !== undefined).toBe(protocols.includes('b'));
  }
});

test('one model is shown by its id', async () => {
  const gateway = await sandbox();
  const answer = await gateway.call('GET', '/v1/models/vendor-h3');
  expect(answer.body).toMatchObject({ id: 'vendor-h3', object: 'model', protocols: ['c'] });
});

test('a model that is not listed is an error under HTTP 200', async () => {
  const gateway = await sandbox();
  const answer = await gateway.call('GET', '/v1/models/nothing');
  expect([answer.status, answer.at('error.code')]).toEqual([200, 'model_not_found']);
});
