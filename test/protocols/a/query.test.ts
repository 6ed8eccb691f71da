import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { SpooledMedia } from '../../../src/exchange.ts';
import type { Json } from '../../../src/json.ts';
import { a } from '../../../src/protocols/a/protocol.ts';
import type { Observation } from '../../../src/protocols/protocol.ts';
import { finished, name, reply, spooled } from './support.ts';
import { anyCharacter } from '../../support/any-character.ts';

function observed(body: unknown, media?: SpooledMedia[]): Observation {
  const verdict = a.readQuery(reply(body, 200, { spooled: media }), name);
  if (verdict.kind !== 'observation') throw new Error(`${verdict.kind}: ${verdict.failure.message}`);
  return verdict;
}

describe('a Protocol A query', () => {
  test.each([
    [name, '/v1beta/models/video-a/operations/op-1'],
    ['models/ä/operations/x%2e:y@z', '/v1beta/models/%C3%A4/operations/x%252e:y@z'],
    ['models/m/operations/"%41<é', '/v1beta/models/m/operations/%22%2541%3C%C3%A9'],
    ['projects/p/models/video-a/operations/9', '/v1beta/projects/p/models/video-a/operations/9'],
    ['12345678901234567890', '/v1beta/12345678901234567890'],
    ['https://evil.example/operations/1', undefined],
    ['//evil.example/operations/1', undefined],
    ['models/../operations/1', undefined],
    ['models//operations/1', undefined],
    ['models/m/operations/1?key=x', undefined],
    ['models\\m', undefined],
    ['x'.repeat(3000), undefined],
  ])('has a safe path, or is refused, if the handle is %j', (handle, path) => {
    if (path !== undefined) expect(a.query(handle)).toEqual({ method: 'GET', path, headers: {} });
    else
      expect(() => a.query(handle)).toThrow(
        expect.objectContaining({ code: 'result_unavailable', exitCode: 9, charged: 'yes', retry: 'never' }),
      );
  });

  test("is refused for a different model's operation if the model is known", () => {
    expect(a.query(name, 'video-a').path).toBe('/v1beta/models/video-a/operations/op-1');
    expect(a.query('models/a%2Fb/operations/1', 'a/b').path).toContain('a%252Fb');
    expect(a.query('operations/1', 'video-a').path).toBe('/v1beta/operations/1');
    expect(() => a.query(name, 'video-b')).toThrow(expect.objectContaining({ exitCode: 9 }));
  });

  test('never has a path outside /v1beta/, regardless of the handle', () => {
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter }), (handle) => {
        let path: string;
        try {
          path = a.query(handle).path;
        } catch {
          return;
        }
        const url = new URL(path, 'https://gateway.example');
        expect(url.href).toBe(`https://gateway.example${path}`);
        expect(path.startsWith('/v1beta/')).toBe(true);
        expect(decodeURIComponent(path.slice('/v1beta/'.length))).toBe(handle);
      }),
      { numRuns: 100 },
    );
  });
});

describe('an unfinished operation', () => {
  test('has the native status of its response', () => {
    expect(observed({ name }).nativeStatus).toBe('');
    expect(observed({ name, done: false })).toMatchObject({ nativeStatus: 'done=false', warning: undefined });
  });

  test.each([
    ['done: "true"', { name, done: 'true', response: finished([]).response }, /neither true nor false/],
    ['done: 1', { name, done: 1 }, /neither true nor false/],
    ['done: null', { name, done: null }, /neither true nor false/],
    ['an error', { name, error: { code: 13, message: 'oops' } }, /an error.*not done.*oops/],
    [
      'a response',
      { ...finished([{ video: { uri: 'https://x.example/v' } }]), done: false },
      /a response.*not done/,
    ],
  ])('is polled again, with a warning, if its response has %s', (_, body, warning) => {
    expect(observed(body)).toMatchObject({
      state: 'running',
      results: [],
      warning: expect.stringMatching(warning) as string,
    });
  });
});

describe('a successful operation', () => {
  test('leads to a download from its unchanged URL, and the key is sent only to the same site', () => {
    const uri = 'https://files.example/v1beta/files/x%2Fy:download?alt=media&sig=a%20b';
    expect(observed(finished([{ video: { uri, encoding: 'video/mp4' } }]))).toMatchObject({
      state: 'succeeded',
      nativeStatus: 'done=true',
      results: [{ sources: [{ kind: 'url', url: uri, key: 'own-site' }], mime: 'video/mp4' }],
      warning: undefined,
    });
  });

  test('lists its samples in order, whether inline or not', () => {
    const samples = [
      { video: { encodedVideo: 'mgw-spool:0', encoding: 'video/mp4' } },
      { video: { uri: 'https://files.example/2' } },
      { video: { encodedVideo: 'mgw-spool:1', uri: 'https://files.example/3' } },
    ];
    expect(observed(finished(samples), spooled(2)).results.map(({ sources }) => sources)).toEqual([
      [{ kind: 'inline', index: 0 }],
      [{ kind: 'url', url: 'https://files.example/2', key: 'own-site' }],
      [
        { kind: 'inline', index: 1 },
        { kind: 'url', url: 'https://files.example/3', key: 'own-site' },
      ],
    ]);
  });

  test('may contain inline media in four different members', () => {
    expect(a.inlineMedia).toEqual(['encodedVideo', 'bytesBase64Encoded', 'videoBytes', 'video']);
  });

  test.each<[string, object]>([
    ['videos with content', { videos: [{ bytesBase64Encoded: 'mgw-spool:0', mimeType: 'video/mp4' }] }],
    ['content in the response itself', { bytesBase64Encoded: 'mgw-spool:0', encoding: 'video/mp4' }],
    ['video as a string', { video: 'mgw-spool:0', encoding: 'video/mp4' }],
    [
      'generatedVideos',
      { generatedVideos: [{ video: { videoBytes: 'mgw-spool:0', mimeType: 'video/mp4' } }] },
    ],
    [
      'an empty list first',
      {
        generateVideoResponse: { generatedSamples: [] },
        videos: [{ video: 'mgw-spool:0', mimeType: 'video/mp4' }],
      },
    ],
  ])('is also read in a different upstream format: %s', (_, response) => {
    const { results, state } = observed({ name, done: true, response }, spooled(1));
    expect({ results, state }).toEqual({
      state: 'succeeded',
      results: [{ sources: [{ kind: 'inline', index: 0 }], mime: 'video/mp4' }],
    });
  });

  test('causes a warning if some videos were filtered', () => {
    const body = finished([{ video: { uri: 'https://files.example/1' } }], {
      raiMediaFilteredCount: 1,
      raiMediaFilteredReasons: ['a face', 58061214],
    });
    expect(observed(body)).toMatchObject({
      state: 'succeeded',
      results: [{}],
      warning: 'Some videos were filtered: a face; 58061214.',
    });
  });

  test("causes a warning if it contains a different operation's name", () => {
    const body = { ...finished([{ video: { uri: 'https://files.example/1' } }]), name: 'operations/other' };
    expect(observed(body).warning).toMatch(/operations\/other/);
  });

  test.each([
    ['gs:', { video: { gcsUri: 'gs://bucket/v.mp4' } }],
    ['file:', { video: { uri: 'file:///etc/passwd' } }],
    ['data:', { video: { uri: 'data:video/mp4;base64,AAAA' } }],
    ['a newline', { video: { uri: 'https://x.example/\nv' } }],
    ['no URL', { video: { uri: 'https://' } }],
    ['another host by slashes', { video: { uri: '//evil.example/v' } }],
    ['content that was not diverted', { video: { encodedVideo: 'AAAA' } }],
    ['a placeholder without media', { video: { encodedVideo: 'mgw-spool:7' } }],
    ['empty content', { video: { encodedVideo: '' } }],
    ['numbers', { video: { uri: 1, encodedVideo: 2 } }],
    ['null', null],
  ])('has no source for a sample that cannot be fetched: %s', (_, sample) => {
    const { state, results, warning } = observed(finished([sample]), spooled(1));
    expect(state).toBe('succeeded');
    expect(results.map(({ sources }) => sources)).toEqual([[]]);
    expect(warning).toMatch(
      /^Sample 1 of 1 (has neither content nor a URL|is broken: |is at \S+, which cannot)/,
    );
  });

  test('leads to a download from its URL, with a warning, if its inline content is not valid Base64', () => {
    const samples = [
      { video: { encodedVideo: 'mgw-spool:0' } },
      { video: { encodedVideo: 'mgw-spool:1', uri: 'https://files.example/2' } },
    ];
    const media = spooled(2).map((one) => ({ ...one, fault: 'the Base64 has wrong padding at character 9' }));
    const { state, results, warning } = observed(finished(samples), media);
    expect(state).toBe('succeeded');
    expect(results.map(({ sources }) => sources.map(({ kind }) => kind))).toEqual([[], ['url']]);
    expect(warning).toMatch(/Sample 1 of 2 is broken: the Base64 has wrong padding.*Sample 2 of 2 is broken/);
  });

  test('leads to a download from the gateway if it contains a path instead of a full URL', () => {
    const [result] = observed(finished([{ video: { uri: '/v1beta/files/x:download?alt=media' } }])).results;
    expect(result?.sources).toEqual([{ kind: 'gateway', path: '/v1beta/files/x:download?alt=media' }]);
  });

  test.each<[string, unknown]>([
    ['neither error nor response', { name, done: true }],
    ['null for both', { name, done: true, error: null, response: null }],
    ['a response that is a list', { name, done: true, response: [] }],
    ['samples that are an object', finished({})],
    ['a generateVideoResponse that is text', { name, done: true, response: { generateVideoResponse: 'x' } }],
  ])('is reported as unproven if there is nothing to fetch: %s', (_, body) => {
    expect(observed(body)).toMatchObject({
      state: 'succeeded',
      results: [],
      unproven: true,
      warning: expect.stringContaining('unproven') as string,
    });
  });
});

describe('a failed operation', () => {
  test.each<[string, unknown, object]>([
    [
      'an error',
      { code: 13, message: 'Internal error.' },
      { code: 'task_failed', message: 'Internal error.', nativeCode: '13' },
    ],
    ['a code alone', { code: 13 }, { code: 'task_failed', message: 'error 13 INTERNAL without a message' }],
    ['a message alone', { message: 'no' }, { code: 'task_failed', message: 'no' }],
    ['text', 'no', { code: 'task_failed', message: 'no' }],
    [
      'the content policy',
      { code: 3, message: 'The prompt violates our content policy.' },
      { code: 'content_policy', nativeCode: '3' },
    ],
    ['quota', { code: 8, message: 'Resource has been exhausted' }, { code: 'task_failed', nativeCode: '8' }],
    [
      'a code as text',
      { code: '3', message: '' },
      { code: 'task_failed', message: 'error 3 INVALID_ARGUMENT without a message' },
    ],
  ])('is classified by its error: %s', (_, error, failure) => {
    expect(observed({ name, done: true, error })).toMatchObject({ state: 'failed', results: [], failure });
  });

  test('is still a failure if it contains a response as well as an error', () => {
    const body = {
      ...finished([{ video: { uri: 'https://files.example/1' } }]),
      error: { code: 13, message: 'x' },
    };
    expect(observed(body)).toMatchObject({ state: 'failed', results: [], failure: { message: 'x' } });
  });

  test.each<[string, unknown]>([
    ['samples absent', undefined],
    ['samples empty', []],
    ['samples null', null],
  ])(
    'is recognized by its missing samples, and is reported as filtered if the response says so (%s)',
    (_, samples) => {
      const reasons = { raiMediaFilteredCount: 1, raiMediaFilteredReasons: ['58061214'] };
      expect(observed(finished(samples, reasons))).toMatchObject({
        state: 'failed',
        failure: { code: 'content_policy', message: 'The video was filtered: 58061214' },
      });
      expect(observed(finished(samples, { raiMediaFilteredCount: 2 }))).toMatchObject({
        failure: { code: 'content_policy', message: expect.stringContaining('2 without a reason') as string },
      });
      expect(observed(finished(samples))).toMatchObject({
        state: 'failed',
        failure: { code: 'task_failed' },
      });
    },
  );
});

test('a response is read if it is valid JSON, even if its length was wrong, and otherwise quoted without markers', () => {
  const body = finished([{ video: { uri: 'https://files.example/1' } }]);
  expect(a.readQuery(reply(body, 200, { complete: false }), name)).toEqual(a.readQuery(reply(body), name));
  const cut = a.readQuery(reply('{"encodedVideo":"mgw-spool:0', 200, { spooled: spooled(1) }), name);
  expect(cut.failure?.message).toBe('no operation in the response: {"encodedVideo":"…');
});

test('no response to a Protocol A download means that the file is not ready', () => {
  expect(a.notReady(reply('', 404))).toBe(false);
});

test('any JSON is read as a response without throwing, and is a success only if it contains done: true', () => {
  const leaf = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom(true, 'true', 'mgw-spool:0', {}, [], [{}]),
  );
  const body = fc.record(
    {
      name: leaf,
      done: leaf,
      error: leaf,
      response: fc.oneof(
        leaf,
        fc.record({ generateVideoResponse: leaf, videos: leaf, video: leaf }, { requiredKeys: [] }),
      ),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(body, fc.jsonValue()), (value) => {
      const verdict = a.readQuery(reply(value, 200, { spooled: spooled(1) }), name);
      const submitted = a.readSubmission(reply(value), {});
      expect(['accepted', 'unknown']).toContain(submitted.kind);
      const done = (value as Record<string, Json> | null)?.done;
      if (verdict.kind === 'observation' && verdict.state === 'succeeded') expect(done).toBe(true);
    }),
    { numRuns: 60 },
  );
});
