import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../../src/json.ts';
import { b } from '../../../src/protocols/b/protocol.ts';
import type { Observation, QueryVerdict } from '../../../src/protocols/protocol.ts';
import { callFailure, finished, reply } from './support.ts';

function read(body: unknown, status = 200, complete = true): QueryVerdict {
  return b.readQuery(reply(body, status, complete), 't-1');
}

function observed(body: unknown): Observation {
  const verdict = read(body);
  if (verdict.kind !== 'observation') throw new Error(`${verdict.kind}: ${verdict.failure.message}`);
  return verdict;
}

describe('a Protocol B query', () => {
  test('contains only the task id', () => {
    expect(b.query('12345678901234567890')).toEqual({
      method: 'POST',
      path: '/',
      headers: {
        'content-type': 'application/json',
        'X-TC-Version': '2018-07-17',
        'X-TC-Action': 'DescribeTaskDetail',
      },
      body: '{"TaskId":"12345678901234567890"}',
    });
  });
});

describe('a Protocol B task in progress', () => {
  test.each([
    ['WAITING', 'queued'],
    ['PROCESSING', 'running'],
    ['SOMETHING_NEW', 'running'],
    ['finish', 'running'],
  ])('is read from the status %s as %s', (Status, state) => {
    const task = { Status, ErrCode: 0, Progress: 40 };
    expect(observed({ Response: { Status, AigcVideoTask: task, RequestId: 'r' } })).toMatchObject({
      state,
      nativeStatus: Status,
      progress: 40,
      results: [],
      requestId: 'r',
    });
  });

  test('has the inner status if the response contains an inner and an outer status', () => {
    expect(observed(finished({ Status: 'PROCESSING' })).state).toBe('running');
    expect(observed(finished({}, { Status: 'PROCESSING' })).state).toBe('succeeded');
  });

  test('has the outer status if the response contains no inner status', () => {
    expect(observed({ Response: { Status: 'WAITING', AigcVideoTask: null } }).state).toBe('queued');
    expect(observed({ Response: { Status: 'PROCESSING' } }).state).toBe('running');
    expect(observed({ Response: { Status: 'WAITING', AigcVideoTask: { Status: '' } } }).state).toBe('queued');
  });

  test.each([-1, 101, '50', null, {}])('is reported without the invalid progress %j', (Progress) => {
    expect(observed(finished({ Status: 'PROCESSING', Progress })).progress).toBeUndefined();
  });
});

describe('a successful Protocol B task', () => {
  test('has a file, details and usage', () => {
    const file = {
      FileUrl: 'https://f.example/v.mp4?sig=a%2Fb',
      FileType: 'mp4',
      ExpireTime: '2026-11-20T00:00:00Z',
      MetaData: { Duration: 5.04 },
      FileId: null,
      FileContent: 'AAAA',
    };
    expect(observed(finished({ Output: { FileInfos: [file], Usage: { OutputSeconds: 5 } } }))).toEqual({
      kind: 'observation',
      state: 'succeeded',
      nativeStatus: 'FINISH',
      results: [
        {
          sources: [{ kind: 'url', url: 'https://f.example/v.mp4?sig=a%2Fb', key: 'never' }],
          mime: 'video/mp4',
          details: { FileType: 'mp4', ExpireTime: '2026-11-20T00:00:00Z', MetaData: { Duration: 5.04 } },
        },
      ],
      usage: { OutputSeconds: 5 },
      requestId: 'r-2',
    });
  });

  test('is recognized if its ErrCodeExt is null', () => {
    expect(observed(finished({ ErrCodeExt: null })).results).toHaveLength(1);
  });

  test.each(['t-2', 7])('causes a warning if the response contains a different task id: %j', (TaskId) => {
    const { state, results, warning } = observed(finished({ TaskId }));
    expect([state, results.length]).toEqual(['succeeded', 1]);
    expect(warning).toContain('not the requested task');
    const none = finished({ TaskId, Output: {} });
    expect(observed(none).warning).toMatch(/lists no file.*not the requested task/);
  });

  test.each([null, undefined, '', {}])(
    'causes no warning if the response contains no task id: %j',
    (TaskId) => {
      expect(observed(finished({ TaskId })).warning).toBeUndefined();
    },
  );

  test('lists its files in order, and reports a file without a URL', () => {
    const FileInfos = [
      { FileUrl: 'https://f.example/1' },
      { FileId: 'x' },
      { FileUrl: 'https://f.example/2' },
    ];
    const { results, warning } = observed(finished({ Output: { FileInfos } }));
    expect(results.map(({ sources }) => sources)).toEqual([
      [{ kind: 'url', url: 'https://f.example/1', key: 'never' }],
      [],
      [{ kind: 'url', url: 'https://f.example/2', key: 'never' }],
    ]);
    expect(warning).toContain('1 of 3');
  });

  test.each([
    null,
    {},
    { FileInfos: null },
    { FileInfos: [] },
    { FileInfos: {} },
    { FileInfos: [{ FileUrl: 7 }] },
  ])('has nothing to fetch if the response contains no file: %j', (Output) => {
    const { state, results, warning, unproven } = observed(finished({ Output }));
    expect({ state, unproven }).toEqual({ state: 'succeeded', unproven: undefined });
    expect(results.flatMap(({ sources }) => sources)).toEqual([]);
    expect(warning).toBeTruthy();
  });

  test.each(['constructor', '__proto__', 'exe'])('has no MIME type if its file type is %s', (FileType) => {
    const Output = { FileInfos: [{ FileUrl: 'https://f.example/v', FileType }] };
    expect(observed(finished({ Output })).results[0]?.mime).toBeUndefined();
  });
});

describe('a Protocol B task with the status FINISH', () => {
  test.each([undefined, null, '0', '', true, {}, []])(
    'is unproven, and has nothing to fetch, if its ErrCode is %j',
    (ErrCode) => {
      const observation = observed(finished({ ErrCode }));
      expect(observation).toMatchObject({ state: 'succeeded', results: [], unproven: true });
      expect(observation.warning).toContain('unproven');
    },
  );

  test('is unproven if the response has no inner object', () => {
    const body = { Response: { Status: 'FINISH', AigcVideoTask: null } };
    expect(observed(body)).toMatchObject({
      results: [],
      warning: expect.stringContaining('unproven') as string,
    });
  });

  test.each([
    [{ ErrCode: 7 }, '7', 'task_failed'],
    [{ ErrCode: -1 }, '-1', 'task_failed'],
    [{ ErrCode: '70000' }, '70000', 'task_failed'],
    [{ ErrCode: 40000 }, '40000', 'task_failed'],
    [{ ErrCodeExt: 'InternalError' }, 'InternalError', 'task_failed'],
    [{ ErrCode: undefined, ErrCodeExt: 'TaskTimeout' }, 'TaskTimeout', 'task_failed'],
    [
      { ErrCode: 70000, ErrCodeExt: 'InvalidParameter.VoilationContent' },
      'InvalidParameter.VoilationContent',
      'content_policy',
    ],
    [{ ErrCode: 70000, ErrCodeExt: 'ContentModerationFailed' }, 'ContentModerationFailed', 'content_policy'],
    [
      { ErrCode: 70000, ErrCodeExt: 'InvalidParameter.MediaFormat' },
      'InvalidParameter.MediaFormat',
      'task_failed',
    ],
    // The specification treats a non-empty value as a failure, but some gateways write "0" for none.
    [{ ErrCodeExt: '0' }, '0', 'task_failed'],
    [{ ErrCodeExt: ' ' }, ' ', 'task_failed'],
    [{ ErrCodeExt: 0 }, '0', 'task_failed'],
    [{ ErrCodeExt: {} }, 'FINISH', 'task_failed'],
  ])('is a failure if it has %j', (task, nativeCode, code) => {
    expect(observed(finished({ Message: 'why', ...task }))).toMatchObject({
      state: 'failed',
      results: [],
      failure: { code, nativeCode, message: 'why', requestId: 'r-2' },
    });
  });

  test('is reported as a failure with the code as the message if there is no other message', () => {
    expect(observed(finished({ ErrCode: 70000 })).failure?.message).toContain('70000');
  });

  test("causes a warning with the file's URL if it failed but has a file", () => {
    expect(observed(finished({ ErrCodeExt: '0' })).warning).toContain('https://files.example/v.mp4');
  });
});

describe('a Protocol B task with the status ABORTED', () => {
  test.each([
    { Status: 'ABORTED', AigcVideoTask: null },
    { Status: 'ABORTED', AigcVideoTask: { Status: 'PROCESSING', ErrCode: 0 } },
    { Status: 'PROCESSING', AigcVideoTask: { Status: 'ABORTED', ErrCode: 0 } },
  ])('is a failure if the response is %j', (Response) => {
    expect(observed({ Response })).toMatchObject({
      state: 'failed',
      nativeStatus: 'ABORTED',
      failure: { nativeCode: 'ABORTED', code: 'task_failed' },
    });
  });

  test('is not a failure if the inner task finished successfully', () => {
    expect(observed(finished({}, { Status: 'ABORTED' })).results).toHaveLength(1);
  });
});

describe('an error response to a Protocol B query', () => {
  test.each([
    ['ResourceNotFound.TaskNotFound', 'missing'],
    ['InvalidParameterValue.TaskId', 'missing'],
    ['AuthFailure.TokenFailure', 'unauthorized'],
    ['ResourceUnavailable.Arrears', 'again'],
    ['SomethingNew', 'again'],
    ['invalid_api_key', 'unauthorized'],
    ['task_not_exist', 'missing'],
  ])('is classified by its code: %s means %s', (code, kind) => {
    expect(b.readQuery(callFailure(code), 't-1')).toMatchObject({
      kind,
      failure: { nativeCode: code, message: 'words' },
    });
  });

  test('is not classified by its message if its code means a temporary error', () => {
    expect(b.readQuery(callFailure('InternalError', 'not found, invalid token'), 't-1').kind).toBe('again');
  });

  test.each([
    [callFailure('InvalidParameterValue', 'TaskId', 400), 'missing'],
    [callFailure('AuthFailure', 'x', 400), 'unauthorized'],
    [callFailure('InvalidParameterValue', 'x', 500), 'again'],
    [reply({ error: { message: '额度不足' } }, 403), 'again'],
    [reply({ code: 'task_not_exist' }, 400), 'missing'],
  ])('is read from %j as %s', (answer, kind) => {
    expect(b.readQuery(answer, 't-1').kind).toBe(kind);
  });

  test.each(['', '[]', '7', '{}', '{"Response":{}}', '{"Response":{"AigcVideoTask":{"ErrCode":0}}}'])(
    'is assumed if the body proves nothing about the task: %j',
    (text) => {
      expect(read(text)).toMatchObject({ kind: 'again', failure: { code: 'bad_reply' } });
    },
  );

  test('is not assumed if the response is valid JSON, even if its length was wrong', () => {
    expect(read(finished(), 200, false)).toEqual(read(finished()));
  });
});

describe('the reader of Protocol B responses', () => {
  const inner = ['Status', 'ErrCode', 'ErrCodeExt', 'Output', 'Message', 'TaskId'];
  const strange: Json[] = [null, '', 'x', 7, -1, true, false, [], {}, [[]]];

  function hasFile(verdict: QueryVerdict): boolean {
    return verdict.kind === 'observation' && verdict.results.length > 0;
  }

  // An independent implementation of section 3.2 of the specification.
  function proves(task: JsonObject, outer: Json | undefined): boolean {
    const status = [task['Status'], outer].find((word) => word !== undefined && word !== null && word !== '');
    const extEmpty = [undefined, null, ''].includes(task['ErrCodeExt'] as string);
    return status === 'FINISH' && task['ErrCode'] === 0 && extEmpty;
  }

  test.each(inner)('never reports a wrong success, regardless of the value of %s', (name) => {
    for (const value of [...strange, undefined, 0, 'FINISH', 'PROCESSING']) {
      const body = finished({ [name]: value });
      const { AigcVideoTask: task, Status } = body['Response'] as JsonObject;
      if (hasFile(read(body))) expect(proves(task as JsonObject, Status)).toBe(true);
    }
  });

  test('never reports a wrong success or throws for any JSON', () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom(...inner),
        fc.constantFrom(200, 400, 500),
        (value, name, status) => {
          expect(hasFile(read(value, status))).toBe(false);
          read(finished({ [name]: value }), status);
          read({ Response: value }, status);
          read({ Response: { AigcVideoTask: value, Status: value, Error: value } }, status);
        },
      ),
      { numRuns: 50 },
    );
  });
});

test("a file host's response never means that a Protocol B file is not ready", () => {
  expect(b.notReady(reply('{"error":"not ready"}', 404))).toBe(false);
});
