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

test.each(['3.0', '2', 'v2.0', '2.0 '])(
  'the version check refuses %j, which the model list does not contain',
  (ModelVersion) => {
    expect(checkVersion({ ModelName: 'Video-B', ModelVersion }, listing)).toEqual([
      {
        field: 'ModelVersion',
        value: expect.any(String) as string,
        allowed: '"1.0", "2.0"',
        flag: '--model-version',
      },
    ]);
  },
);

test('the version check refuses a version of a different model', () => {
  expect(checkVersion({ ModelName: 'Lite', ModelVersion: '2.0' }, listing)).toMatchObject([
    { allowed: '"1.0"' },
  ]);
});

test.each([
  ['a listed version of a model', { ModelName: 'Video-B', ModelVersion: '2.0' }],
  ['any version if the list contains no versions of the model', { ModelName: 'other', ModelVersion: '9' }],
  ['a missing model, which the body check reports', { ModelVersion: '1' }],
  ['a missing version, which the body check reports', { ModelName: 'Video-B' }],
])('the version check accepts %s', (_, body) => {
  expect(checkVersion(body, listing)).toEqual([]);
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

test('the error for an unknown model is short and printable even if the list is long and has unusual names', () => {
  const many = Array.from({ length: 500 }, (_, index) => model(`\u001b[31mm${index}`, '1'));
  const [violation] = checkVersion({ ModelName: 'x', ModelVersion: '1' }, many);
  expect(violation?.allowed).toContain('and 488 more');
  expect(violation?.allowed).not.toContain('\u001b');
});

test('mgw requests the model list if the body has a model', () => {
  expect(b.needsListing?.({ ModelName: 'x' })).toBe('fill');
  expect(b.needsListing?.({ ModelName: 'x', ModelVersion: '1.0' })).toBe('check');
  expect(b.needsListing?.({ ModelName: 7 })).toBeUndefined();
  expect(b.needsListing?.({})).toBeUndefined();
});

test('mgw fills in a missing version if the model has only one, and changes no other field', () => {
  const body = { ModelName: 'Lite', Prompt: 'p' };
  expect(b.complete?.(body, listing)).toEqual({ ...body, ModelVersion: '1.0' });
  expect(body).toEqual({ ModelName: 'Lite', Prompt: 'p' });
});

test.each([
  { ModelName: 'Video-B', ModelVersion: '2.0' },
  { ModelName: 'other' },
  { ModelName: 'Lite', ModelVersion: 7 },
  {},
])('mgw does not fill in a version for the body %j', (body) => {
  expect(complete(body, listing)).toEqual(body);
});

test.each([
  [{ ModelName: 'Video-B' }, '--model-version (ModelVersion): missing for Video-B; needed: "1.0", "2.0"'],
  [{ ModelName: 'Video-B', ModelVersion: '3' }, '"1.0", "2.0"'],
  [{ ModelName: 'unknown' }, 'Video-B, Lite'],
])('the error for the body %j lists the allowed values', (body, words) => {
  expect(() => complete(body, listing)).toThrow(
    expect.objectContaining({ code: 'usage', message: expect.stringContaining(words) as string }),
  );
});
