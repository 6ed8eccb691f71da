import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Failure, Model } from '../../src/exchange.ts';
import { getModel, listModels, readModels } from '../../src/protocols/models.ts';
import { mutationsOf } from './conformance.ts';

/** Returns the parsed model list. */
function readOf(body: unknown, status = 200): ReturnType<typeof readModels> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return readModels({ status, headers: {}, text, complete: true });
}

function modelsOf(body: unknown): Model[] {
  const read = readOf(body);
  if ('failure' in read) throw new Error(read.failure.message);
  return read.models;
}

function failureOf(body: unknown, status = 200): Failure {
  const read = readOf(body, status);
  if ('models' in read) throw new Error(`read as ${read.models.length} models`);
  return read.failure;
}

function entry(members: object): Model {
  const [model] = modelsOf({ data: [{ id: 'm', ...members }] });
  if (model === undefined) throw new Error('no model');
  return model;
}

describe('a request for the model list', () => {
  test('is a GET of /v1/models', () => {
    expect(listModels()).toEqual({ method: 'GET', path: '/v1/models', headers: {} });
  });

  test('contains the percent-encoded id if it is for one model', () => {
    expect(getModel('org/a b?#%').path).toBe('/v1/models/org%2Fa%20b%3F%23%25');
  });

  test.each(['', '.', '..', '\ud800'])('is refused for the model id %j', (id) => {
    expect(() => getModel(id)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('the model list', () => {
  test('is read in the format of new-api', () => {
    const data = [
      {
        id: 'x',
        object: 'model',
        created: 1626777600,
        owned_by: 'custom',
        supported_endpoint_types: ['openai', 'openai-video'],
      },
      { id: 'y', object: 'model', supported_endpoint_types: null },
    ];
    expect(modelsOf({ success: true, object: 'list', data })).toEqual([
      {
        id: 'x',
        protocols: ['c'],
        endpoints: ['openai', 'openai-video'],
        model_versions: [],
        owned_by: 'custom',
        created: 1626777600,
        raw: data[0],
      },
      { id: 'y', protocols: [], endpoints: [], model_versions: [], raw: data[1] },
    ]);
  });

  test('is read in the format of Gemini', () => {
    const models = [
      { name: 'models/veo', displayName: 'V', supportedGenerationMethods: ['predictLongRunning'] },
      { name: 'plain', displayName: 'P' },
    ];
    expect(modelsOf({ models, nextPageToken: null })).toMatchObject([
      { id: 'veo', protocols: ['a'] },
      { id: 'plain', protocols: [] },
    ]);
  });

  test('is read in the format of Anthropic', () => {
    const data = [{ id: 'q', type: 'model', display_name: 'Q', created_at: '2025-01-01T00:00:00Z' }];
    expect(modelsOf({ data, has_more: false, first_id: 'q', last_id: 'q' })).toMatchObject([
      { id: 'q', created: 1735689600 },
    ]);
  });

  test.each<[object, string | undefined]>([
    [{ object: 'list', has_more: true, last_id: 'x' }, '?after=x'],
    [{ has_more: true, last_id: 'x y&' }, '?after_id=x+y%26'],
    [{ has_more: true }, '?after_id=m'],
    [{ has_more: false, last_id: 'm' }, undefined],
    [{ nextPageToken: 't' }, '?pageToken=t'],
    [{ next_page_token: 't' }, '?page_token=t'],
    [{ next: '/v1/models?page=2' }, '?page=2'],
    [{ next: 'https://elsewhere.example/v1/models?page=2#x' }, '?page=2'],
    [{ next: 'two' }, undefined],
    [{ next: null, nextPageToken: '', next_page_token: null }, undefined],
  ])('determines the query of the next page, if there is one: %j leads to %j', (members, nextPage) => {
    expect(readOf({ data: [{ id: 'm' }], ...members })).toMatchObject({ nextPage });
  });

  test('is read from a response that is a single model', () => {
    expect(modelsOf({ id: 'one', object: 'model' })).toMatchObject([{ id: 'one' }]);
  });

  test('is empty if the response contains no model', () => {
    expect(modelsOf({ data: [] })).toEqual([]);
  });

  test('omits entries that are not objects or that have no id', () => {
    expect(modelsOf({ data: [null, 1, 'x', [], {}, { id: '' }, { id: 'kept' }] })).toMatchObject([
      { id: 'kept' },
    ]);
  });

  test('merges entries with the same id at the position of the first entry', () => {
    const data = [
      { id: 'k', model_versions: ['1'], owned_by: 'first' },
      { id: 'other' },
      { id: 'k', model_versions: ['2', '1'], protocol: 'a' },
    ];
    expect(modelsOf({ data })).toEqual([
      expect.objectContaining({
        id: 'k',
        protocols: ['a', 'b'],
        endpoints: ['a'],
        model_versions: ['1', '2'],
        owned_by: 'first',
      }),
      expect.objectContaining({ id: 'other' }),
    ]);
  });

  test('contains each id unchanged', () => {
    expect(
      modelsOf({ data: [{ id: '\u001b[31m\u202Ered' }, { id: '__proto__' }] }).map((model) => model.id),
    ).toEqual(['\u001b[31m\u202Ered', '__proto__']);
  });

  test('contains the exact digits of an id that is a number', () => {
    expect(modelsOf('{"data":[{"id":12345678901234567890}]}')).toMatchObject([
      { id: '12345678901234567890' },
    ]);
  });
});

describe("a model's versions", () => {
  test.each([
    [
      ['1.0', '2.0'],
      ['1.0', '2.0'],
    ],
    [
      [{ version: '1.0', id: 'no' }, { id: '2.0' }, { name: '3.0' }, {}],
      ['1.0', '2.0', '3.0'],
    ],
    [
      ['1', null, '', 2.5, '1', ['nested']],
      ['1', '2.5'],
    ],
    ['only', ['only']],
    [null, []],
    [{}, []],
    [true, []],
  ])('are read from %j', (given, versions) => {
    expect(entry({ model_versions: given }).model_versions).toEqual(versions);
  });
});

describe("a model's protocols", () => {
  test.each([
    [{ protocol: 'a' }, ['a']],
    [{ protocol: 'protocol_a' }, ['a']],
    [{ protocols: ['Protocol A', 'Protocol C'] }, ['a', 'c']],
    [{ protocols: 'a, b' }, ['a', 'b']],
    [{ supported_protocols: ['long-running'] }, ['a']],
    [{ supported_endpoint_types: ['predictLongRunning'] }, ['a']],
    [{ endpoint_types: ['gemini-video'] }, ['a']],
    [{ video_protocol: 'cloud-action' }, ['b']],
    [{ video_protocol: 'aigc/vod' }, ['b']],
    [{ protocols: [{ name: 'CreateAigcVideoTask' }] }, ['b']],
    [{ protocol: 'Protocol B' }, ['b']],
    [{ protocol: 'unified' }, ['c']],
    [{ supported_endpoint_types: ['/v1/video/generations'] }, ['c']],
    [{ supported_endpoint_types: ['openai', 'gemini', 'image-generation', 'embeddings'] }, []],
    [{ supported_endpoint_types: 7 }, []],
    [{ model_versions: ['1'] }, ['b']],
    [{ model_versions: [] }, []],
    // The member `protocol` takes precedence over the supported endpoints.
    [{ protocol: 'a', supported_endpoint_types: ['openai-video'] }, ['a']],
    [{ protocol: 'new', supported_endpoint_types: ['openai-video'] }, ['c']],
  ])('are read from %j', (members, protocols) => {
    expect(entry(members).protocols).toEqual(protocols);
  });

  test('default to Protocol C for the models of the specification', () => {
    for (const id of ['vendor-h3', 'vendor-h3-base', 'vendor-h3-base-fast', 'vendor-h3-mini']) {
      expect(modelsOf({ data: [{ id, supported_endpoint_types: null }] })[0]?.protocols).toEqual(['c']);
      expect(modelsOf({ data: [{ id, protocol: 'b' }] })[0]?.protocols).toEqual(['b']);
    }
  });
});

describe('the response to a request for the model list', () => {
  test('is a failure if it contains an error with HTTP 200', () => {
    expect(failureOf({ success: false, message: 'get user group failed' })).toMatchObject({
      code: 'server_error',
      message: 'get user group failed',
    });
  });

  test('is a failure if it reports an unknown model with HTTP 200', () => {
    const error = {
      message: "The model 'x' does not exist",
      type: 'invalid_request_error',
      param: 'model',
      code: 'model_not_found',
    };
    expect(failureOf({ error })).toMatchObject({ code: 'not_found', nativeCode: 'model_not_found' });
  });

  test('is not a failure if its error is empty', () => {
    expect(modelsOf({ error: null, data: [{ id: 'x' }] })).toHaveLength(1);
    expect(modelsOf({ error: {}, data: [{ id: 'x' }] })).toHaveLength(1);
  });

  test('is a failure if it refuses the key', () => {
    expect(failureOf({ error: { message: 'Invalid token (request id: r1)' } }, 401)).toMatchObject({
      code: 'auth',
      requestId: 'r1',
    });
  });

  test.each([
    { data: {} },
    { data: null },
    { data: ['x'] },
    { models: 7 },
    [],
    7,
    '',
    '<html>',
    '{"data":[{"id":"x"}',
  ])('is a failure if it is unreadable: %j', (body) => {
    expect(failureOf(body).code).toBe('bad_reply');
  });

  test('is a failure that says to check the base URL if it is a web page', () => {
    expect(failureOf('<html>').message).toMatch(/<html> \(a web page: check the base URL\)$/);
  });

  test('is a failure if it is a redirect', () => {
    expect(failureOf('', 302).code).toBe('bad_reply');
  });
});

test('a model list with a field that is missing, null or of another type never yields a model that does not exist', () => {
  const entry = { id: 'Video-B', object: 'model', model_versions: ['2.0'], owned_by: 'x' };
  const values = [undefined, null, 'text', '', 7, true, { inside: 1 }, [1], []];
  for (const body of mutationsOf({ data: [entry] }, values)) {
    const read = readModels({ status: 200, headers: {}, text: JSON.stringify(body), complete: true });
    const ids = 'models' in read ? read.models.map(({ id }) => id) : [];
    for (const id of ids) expect(['Video-B', 'text', '7'], JSON.stringify(body)).toContain(id);
  }
});

test('any JSON is read as a model list without throwing', () => {
  fc.assert(
    fc.property(fc.json(), fc.json(), fc.constantFrom(200, 204, 401, 500), (outer, inner, status) => {
      for (const text of [
        outer,
        `{"data":[${inner},{"id":"x","model_versions":${inner},"protocol":${inner}}]}`,
      ])
        readModels({ status, headers: {}, text, complete: true });
    }),
    { numRuns: 50 },
  );
});

test('a deeply nested model list does not exhaust the stack', () => {
  const deep = '['.repeat(5_000) + ']'.repeat(5_000);
  expect(modelsOf(`{"data":[{"id":"x","model_versions":${deep},"protocol":${deep}}]}`)).toMatchObject([
    { id: 'x', protocols: [] },
  ]);
});

test('a model list counts if it is valid JSON, even if its length was wrong', () => {
  const text = JSON.stringify({ data: [{ id: 'one' }] });
  const reply = { status: 200, headers: {}, text, complete: false };
  expect(readModels(reply)).toMatchObject({ models: [{ id: 'one' }] });
  expect(readModels({ ...reply, text: text.slice(0, -1) })).toMatchObject({ failure: { code: 'bad_reply' } });
});
