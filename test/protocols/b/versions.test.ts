import { expect, test } from 'vitest';
import { b, checkVersion, complete, versionsOf } from '../../../src/protocols/b/protocol.ts';
import type { Model } from '../../../src/exchange.ts';

function model(id: string, ...versions: string[]): Model {
  return { id, protocols: ['b'], endpoints: [], model_versions: versions, raw: {} };
}

const listing = [model('other'), model('Video-B', '1.0', '2.0'), model('Lite', '1.0')];

test("a model's versions are found by its exact name", () => {
  expect(versionsOf('Video-B', listing)).toEqual(['1.0', '2.0']);
  expect(versionsOf('video-b', listing)).toEqual([]);
  expect(versionsOf('other', listing)).toEqual([]);
});

test('a listed version of a model passes', () => {
  expect(checkVersion({ ModelName: 'Video-B', ModelVersion: '2.0' }, listing)).toEqual([]);
});

test.each(['3.0', '2', 'v2.0', '2.0 '])('the version %j is refused', (ModelVersion) => {
  expect(checkVersion({ ModelName: 'Video-B', ModelVersion }, listing)).toEqual([
    {
      field: 'ModelVersion',
      value: expect.any(String) as string,
      allowed: '"1.0", "2.0"',
      flag: '--model-version',
    },
  ]);
});

test('a version of a different model is refused', () => {
  expect(checkVersion({ ModelName: 'Lite', ModelVersion: '2.0' }, listing)).toMatchObject([
    { allowed: '"1.0"' },
  ]);
});

test('any version passes if the model is listed without versions', () => {
  expect(checkVersion({ ModelName: 'other', ModelVersion: '9' }, listing)).toEqual([]);
});

test('the error for an unknown model lists the known models, most similar first', () => {
  expect(checkVersion({ ModelName: 'x', ModelVersion: '1' }, listing)).toEqual([
    { field: 'ModelName', value: 'x', allowed: 'Video-B, Lite', flag: '--model' },
  ]);
  expect(checkVersion({ ModelName: 'VIDEO-B', ModelVersion: '1' }, listing)).toMatchObject([
    { allowed: 'Video-B' },
  ]);
  expect(checkVersion({ ModelName: 'x' }, [])).toMatchObject([{ field: 'ModelName' }]);
});

test('the version check ignores a missing model or version, because the body check reports it', () => {
  expect(checkVersion({ ModelVersion: '1' }, listing)).toEqual([]);
  expect(checkVersion({ ModelName: 'Video-B' }, listing)).toEqual([]);
});

test('the error is short and printable even with a long list and unusual names', () => {
  const many = Array.from({ length: 5_000 }, (_, index) => model(`\u001b[31mm${index}`, '1'));
  const [violation] = checkVersion({ ModelName: 'x', ModelVersion: '1' }, many);
  expect(violation?.allowed).toContain('and 4988 more');
  expect(violation?.allowed).not.toContain('\u001b');
});

test('a body with a model needs the model list', () => {
  expect(b.needsListing?.({ ModelName: 'x' })).toBe('fill');
  expect(b.needsListing?.({ ModelName: 'x', ModelVersion: '1.0' })).toBe('check');
  expect(b.needsListing?.({ ModelName: 7 })).toBeUndefined();
  expect(b.needsListing?.({})).toBeUndefined();
});

test('a missing version is filled in if the model has only one, and no other field changes', () => {
  const body = { ModelName: 'Lite', Prompt: 'p' };
  expect(b.complete?.(body, listing)).toEqual({ ...body, ModelVersion: '1.0' });
  expect(body).toEqual({ ModelName: 'Lite', Prompt: 'p' });
});

test.each([
  { ModelName: 'Video-B', ModelVersion: '2.0' },
  { ModelName: 'other' },
  { ModelName: 'Lite', ModelVersion: 7 },
  {},
])('the body %j is not changed', (body) => {
  expect(complete(body, listing)).toEqual(body);
});

test.each([
  [{ ModelName: 'Video-B' }, '--model-version (ModelVersion): missing for Video-B; needed: "1.0", "2.0"'],
  [{ ModelName: 'Video-B', ModelVersion: '3' }, '"1.0", "2.0"'],
  [{ ModelName: 'unknown' }, 'Video-B, Lite'],
])('the error for the body %j lists the choices', (body, words) => {
  expect(() => complete(body, listing)).toThrow(
    expect.objectContaining({ code: 'usage', message: expect.stringContaining(words) as string }),
  );
});
