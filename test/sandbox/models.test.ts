import { expect, test } from 'vitest';
import { allModels, priceFor, allPrices, priceText } from '../../src/sandbox/models.ts';
import { sandbox } from './harness.ts';

interface Entry {
  id: string;
  protocols: string[];
  model_versions?: string[];
}

test("the sandbox lists each model's protocols, and the versions of Protocol B models", async () => {
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

test('the sandbox returns one model by its id, or an error with HTTP 200 for an unknown id', async () => {
  const gateway = await sandbox();
  const response = await gateway.call('GET', '/v1/models/vendor-h3');
  expect(response.body).toMatchObject({ id: 'vendor-h3', object: 'model', protocols: ['c'] });
  const unknown = await gateway.call('GET', '/v1/models/nothing');
  expect([unknown.status, unknown.at('error.code')]).toEqual([200, 'model_not_found']);
});

test('the model list contains a price for every sandbox model', async () => {
  const gateway = await sandbox();
  const entries = (await gateway.call('GET', '/v1/models')).at('data') as { id: string; prices: object[] }[];
  expect(entries.map(({ id }) => id)).toEqual(allModels.map(({ id }) => id));
  expect(entries.flatMap(({ prices }) => prices)).toHaveLength(allPrices.length);
  for (const { area, id } of allModels) expect(Number(priceFor(area, id).price)).toBeGreaterThan(0);
  const parts = (image: string): object => ({ reference_image: image, free_reference_images: 5 });
  expect(entries.find(({ id }) => id === 'vendor-h3')?.prices).toEqual([
    { unit: 'second', price: '10', default_seconds: 5, ...parts('3') },
    { unit: 'second', price: '20', resolution: '2K', default_seconds: 5, ...parts('6') },
  ]);
});

test('sandbox prices are written in the syntax of the configuration', () => {
  expect(priceText('c', 'vendor-h3')).toBe(
    'second=10 default_seconds=5 reference_image=3 free_reference_images=5; ' +
      'resolution=2K: second=20 default_seconds=5 reference_image=6 free_reference_images=5',
  );
  expect(priceText('tts', 'speech-tts-2.0')).toBe('10k_visible_characters=150');
  expect(priceText('c', 'nothing')).toBeUndefined();
  expect(() => priceFor('c', 'nothing')).toThrow(RangeError);
});
