import { describe, expect, it } from 'vitest';
import type { Json } from '../../../src/json.ts';
import { c } from '../../../src/protocols/c/protocol.ts';
import type { Observation, QueryVerdict } from '../../../src/protocols/protocol.ts';
import { replyOf } from '../conformance.ts';

const handle = 'task_1';
const video = 'https://cdn.example.com/v.mp4?sig=a%2Fb';
const content = { kind: 'gateway', path: '/v1/videos/task_1/content' };

function read(answer: string | Json, status = 200): QueryVerdict {
  const sample = typeof answer === 'string' ? { text: answer } : { body: answer };
  return c.readQuery(replyOf({ ...sample, status }), handle);
}

function observed(answer: Json): Observation {
  const verdict = read(answer);
  expect(verdict.kind).toBe('observation');
  return verdict as Observation;
}

/** Returns a task record of the gateway, in the gateway's envelope. */
function row(data: object): Json {
  return {
    code: 'success',
    message: '',
    data: { id: 1042, task_id: handle, platform: '35', quota: 9, ...data },
  };
}

describe("a task's state", () => {
  // One response for each place in which a state is found. The next test covers the words.
  const risk = { code: 50411, status: 50411, message: 'Risk Not Pass', data: { status: 'done' } };
  const dialects: [string, Json, Observation['state'], string][] = [
    ['wrapped', row({ status: 'NOT_START' }), 'queued', 'NOT_START'],
    ['wrapped', row({ status: '' }), 'queued', ''],
    [
      'wrapped',
      row({ status: 'RUNNING', data: { task_status: 'succeed', url: video } }),
      'running',
      'RUNNING',
    ],
    ['wrapped list', { code: 200, data: [{ id: 't', status: 'processing' }] }, 'running', 'processing'],
    ['wrapped as a result', { code: 200, result: { id: 't', status: 'running' } }, 'running', 'running'],
    ['wrapped twice', { code: 0, data: { task: { id: 't', status: 'queued' } } }, 'queued', 'queued'],
    ['wrapped without an id', { data: { status: 'IN_QUEUE' } }, 'queued', 'IN_QUEUE'],
    ['flat', { task_id: 't', status: 'in_progress' }, 'running', 'in_progress'],
    ['flat', { task_id: 't', status: 'timeout', error: { code: 0 } }, 'failed', 'timeout'],
    ['flat without an id', { status: 'completed' }, 'succeeded', 'completed'],
    ['flat without an id', { status: 'success', url: video }, 'succeeded', 'success'],
    ['flat with an error text', { id: 'o', status: 'failed', error: 'no luck' }, 'failed', 'failed'],
    ['OpenAI', { id: 't', object: 'video', status: 'unknown', completed_at: 17 }, 'queued', 'unknown'],
    ['OpenAI', { id: 't', status: 'in_progress', metadata: { url: video } }, 'running', 'in_progress'],
    ['SGLang', { id: 's', status: 'completed', url: null, file_path: 'a.mp4' }, 'succeeded', 'completed'],
    ['MiniMax v2', { task: { id: 't', status: 'cancelled' } }, 'failed', 'cancelled'],
    ['MiniMax', { task_id: 't', status: 'Success', base_resp: { status_code: 0 } }, 'succeeded', 'Success'],
    ['MiniMax', { task_id: 't', status: 'Fail', base_resp: { status_code: 1027 } }, 'failed', 'Fail'],
    ['Kling', { code: 0, data: { task_id: 't', task_status: 'processing' } }, 'running', 'processing'],
    ['Vidu', { id: 't', state: 'queueing', err_code: '', creations: [] }, 'queued', 'queueing'],
    ['Vidu without an id', { state: 'success', creations: [{ url: video }] }, 'succeeded', 'success'],
    ['Zhipu', { id: 'z', request_id: 'r', task_status: 'PROCESSING' }, 'running', 'PROCESSING'],
    [
      'Zhipu without an id',
      { task_status: 'SUCCESS', video_result: [{ url: video }] },
      'succeeded',
      'SUCCESS',
    ],
    ['Jimeng', { code: 10000, status: 10000, data: { status: 'in_queue' } }, 'queued', 'in_queue'],
    ['Jimeng', { status: 10000, data: { status: 'done', video_url: video } }, 'succeeded', 'done'],
    ['Jimeng', risk, 'failed', 'done'],
    ['Jimeng in place of a task', { ...risk, data: null }, 'failed', '50411'],
    ['DashScope', { output: { task_id: 't', task_status: 'PENDING' } }, 'queued', 'PENDING'],
    ['UCloud', { output: { task_status: 'Failure', error_message: 'x' } }, 'failed', 'Failure'],
    ['SiliconFlow', { status: 'Succeed', results: { videos: [{ url: video }] } }, 'succeeded', 'Succeed'],
    ['together', { id: 't', status: 'done', outputs: { video_url: video } }, 'succeeded', 'done'],
    ['an envelope', { status: 'success', data: { task_id: 't', status: 'queued' } }, 'queued', 'queued'],
    [
      'an envelope with an id',
      { id: 'r', status: 'success', data: { status: 'queued' } },
      'queued',
      'queued',
    ],
    [
      'an envelope with a URL',
      { status: 'success', url: video, data: { status: 'queued' } },
      'queued',
      'queued',
    ],
    [
      'a task around its raw body',
      { id: 't', status: 'run', data: { status: 'succeeded' } },
      'running',
      'run',
    ],
    ['an unlisted word', row({ status: 'POLISHING' }), 'running', 'POLISHING'],
  ];
  it.each(dialects)('is read from the dialect "%s": %j', (_, answer, state, nativeStatus) => {
    const seen = observed(answer);
    expect([seen.state, seen.nativeStatus]).toEqual([state, nativeStatus]);
  });

  const words: Record<Observation['state'], string> = {
    queued:
      'queued queue queueing queuing in_queue InQueue pending submitted not_start NOT-STARTED created preparing waiting wait starting accepted scheduled unknown UNKNOWN',
    running: 'in_progress in-progress InProgress processing RUNNING generating run started active dreaming',
    succeeded: 'completed COMPLETE succeeded succeed success finished done ok ready',
    failed:
      'failed failure fail error errored cancelled canceled expired timeout timed_out rejected aborted not_found deleted terminated blocked',
  };
  it.each(Object.entries(words))('is %s if the response contains a word for that state', (state, list) => {
    for (const status of list.split(' ')) expect(observed({ task_id: 't', status }).state).toBe(state);
  });

  it('is running if its word is not in the specification, with a warning if the response contains a result', () => {
    const seen = observed({ task_id: 't', status: 'polished', url: video });
    expect(seen).toMatchObject({ state: 'running', nativeStatus: 'polished', results: [] });
    expect(seen.warning).toContain('"polished" is unknown');
    expect(observed({ task_id: 't', status: 'polished' }).warning).toBeUndefined();
  });
});

describe('responses without a state', () => {
  it.each<[string, string | Json, number, QueryVerdict['kind'], string]>([
    ['an envelope alone', { status: 'success', data: null }, 200, 'again', 'bad_reply'],
    ['an envelope around no state', { status: 'success', data: { task_id: 't' } }, 200, 'again', 'bad_reply'],
    ['a number for a state', { task_id: 't', status: 10000 }, 200, 'again', 'bad_reply'],
    ['empty 204', '', 204, 'again', 'bad_reply'],
    ['a list', '[]', 200, 'again', 'bad_reply'],
    ['no task', { error: { message: 'invalid task_id' } }, 400, 'missing', 'not_found'],
    ['no task, Chinese', { code: 'x', message: '任务不存在' }, 400, 'missing', 'not_found'],
    ['an envelope error', { status: 'error', message: 'internal' }, 200, 'again', 'bad_reply'],
    ['raw text in the message', { message: '{"error":{"message":"eof"}}' }, 500, 'again', 'server_error'],
    ['bad key', { error: { message: 'no access' } }, 403, 'unauthorized', 'auth'],
    ['bad key with 200', { base_resp: { status_code: 1004, status_msg: 'no' } }, 200, 'unauthorized', 'auth'],
    ['exhausted key', { error: { message: 'This token quota is exhausted' } }, 401, 'again', 'balance'],
    ['rate limit with 200', { code: 1302, message: 'rate' }, 200, 'again', 'rate_limited'],
    ['gateway away', '', 524, 'again', 'server_error'],
  ])('are classified by their content and status: %s, %j with HTTP %i', (_, answer, status, kind, code) => {
    expect(read(answer, status)).toMatchObject({ kind, failure: { code } });
  });

  it('are not reported as an error if the envelope reports success and contains no data', () => {
    expect(read({ code: 'success', message: '', data: null })).toMatchObject({ hasNoStateYet: true });
    for (const other of [{ data: null }, { code: 'success' }, { status: 'success', data: null }])
      expect(read(other)).not.toHaveProperty('hasNoStateYet');
  });
});

describe("a finished task's result", () => {
  const done = { task_id: handle, status: 'completed' };
  const cover = 'https://x.y/c';
  it.each<[string, Json]>([
    ['result_url', row({ status: 'SUCCESS', result_url: video })],
    ['fail_reason of a success', row({ status: 'SUCCESS', fail_reason: video })],
    ['fail_reason, flat', { ...done, fail_reason: video }],
    ['url', { ...done, url: video }],
    ['video_url', { ...done, video_url: video }],
    ['metadata.url', { ...done, metadata: { url: video } }],
    ['video.url', { ...done, video: { url: video } }],
    ['content.video_url', { ...done, content: { video_url: video } }],
    ['content.url', { task: { id: 't', status: 'succeeded', content: { url: video } } }],
    ['content.result_url', { ...done, content: { result_url: video } }],
    ['output.video_url', { output: { task_status: 'SUCCEEDED', video_url: video } }],
    ['output.urls', { output: { task_status: 'Success', urls: [video] } }],
    ['outputs.video_url', { ...done, outputs: { video_url: video } }],
    ['output.video.url', { data: { status: 'COMPLETED', output: { video: { url: video } } } }],
    ['data.output.video_url', { code: 200, data: { ...done, output: { video_url: video } } }],
    ['task_result', { data: { task_status: 'succeed', task_result: { videos: [{ url: video }] } } }],
    ['result.videos, a list of lists', { data: { ...done, result: { videos: [{ url: [video] }] } } }],
    ['results.videos', { status: 'Succeed', results: { videos: [{ url: video }] } }],
    [
      'video_result',
      { id: 'z', task_status: 'SUCCESS', video_result: [{ url: video, cover_image_url: cover }] },
    ],
    ['creations', { id: 't', state: 'success', creations: [{ url: video, cover_url: cover }] }],
    ['unsigned_urls', { ...done, unsigned_urls: [video], polling_url: cover }],
    ['videos', { ...done, videos: [{ url: video }] }],
    ['a raw body inside the response', row({ status: 'SUCCESS', data: { content: { video_url: video } } })],
    ['a raw envelope inside the response', row({ status: 'SUCCESS', data: { data: { url: video } } })],
    [
      'a raw task inside the response',
      row({ status: 'SUCCESS', data: { task: { content: { url: video } } } }),
    ],
    ['the better of two URLs', { ...done, result_url: video, metadata: { url: cover } }],
    ['the only usable URL of two', { ...done, result_url: 'some reason', url: video }],
  ])('is fetched from the gateway or, if that fails, from %s', (_, answer) => {
    const seen = observed(answer);
    expect(seen.state).toBe('succeeded');
    expect(seen.results.map((result) => result.sources)).toEqual([
      [content, { kind: 'url', url: video, key: 'own-site' }],
    ]);
    expect(seen.warning).toBeUndefined();
  });

  it.each<[string, Json]>([
    ['no URL', done],
    ['an empty URL', { ...done, url: '', metadata: { url: '' } }],
    [
      'a reason instead of a URL',
      row({ status: 'SUCCESS', result_url: 'it failed', fail_reason: 'it failed' }),
    ],
    ['the video itself', { ...done, url: 'data:video/mp4;base64,AAAA' }],
    ['a file URL', { ...done, url: 'file:///etc/passwd', file_path: 'outputs/a.mp4' }],
    ['a relative path', { ...done, url: '/v1/x.mp4' }],
    ['a URL with a password', { ...done, url: 'https://me:pw@example.com/v.mp4' }],
    ['a URL with a line feed', { ...done, url: 'https://example.com/v.mp4\nX: y' }],
    [
      'only the URLs of a cover, a watermarked copy and a poll',
      { ...done, cover_url: video, cover_image_url: video, watermarked_url: video, polling_url: video },
    ],
    ['the URLs of pictures', { ...done, image_urls: [video] }],
    ['an object instead of a URL', { ...done, url: { href: video } }],
  ])('is fetched only from the gateway if the response contains %s', (_, answer) => {
    expect(observed(answer).results.map((result) => result.sources)).toEqual([[content]]);
  });

  it('includes the details in the response, except URLs', () => {
    const metadata = { duration: 5, fps: 24, size: '1280x720', url: video, other: {} };
    const seen = observed({ ...done, progress: 100, metadata, usage: { total_tokens: 7, note: null } });
    expect(seen).toMatchObject({ progress: 100, usage: { total_tokens: 7 } });
    expect(seen.results[0]?.details).toEqual({ duration: 5, fps: 24, size: '1280x720' });
  });

  it('is used despite an error if the response contains a URL', () => {
    const error = { code: 'x', message: 'broken' };
    expect(observed({ ...done, error })).toMatchObject({ state: 'failed', failure: { message: 'broken' } });
    const seen = observed({ ...done, error, url: video });
    expect(seen).toMatchObject({
      state: 'succeeded',
      warning: 'The task succeeded, but the response reports: broken',
    });
    expect(observed({ ...done, error: { code: 0, message: '' } }).state).toBe('succeeded');
  });

  it.each<[string, Json]>([
    ['its own error code', { id: 't', state: 'success', err_code: 'CreditInsufficient', creations: [] }],
    ['an error inside the envelope', row({ status: 'SUCCESS', error: { message: 'broken' } })],
    ['an envelope that reports failure', { success: false, data: { status: 'SUCCESS', task_id: 't' } }],
    [
      'a base_resp that reports failure',
      { task_id: 't', status: 'Success', base_resp: { status_code: 1000 } },
    ],
    ['a message alone', { message: 'Generation failed', data: { status: 'done' } }],
  ])('is missing, and the task has failed, if the response contains %s', (_, answer) => {
    expect(observed(answer)).toMatchObject({ state: 'failed', results: [] });
  });

  it('is not fetched from the gateway if the handle cannot be part of a path', () => {
    const verdict = c.readQuery(replyOf({ body: { ...done, url: video } }), '../x');
    expect((verdict as Observation).results).toEqual([
      { sources: [{ kind: 'url', url: video, key: 'own-site' }], details: undefined },
    ]);
    expect((c.readQuery(replyOf({ body: done }), '../x') as Observation).results).toEqual([]);
  });
});

describe('the progress of a Protocol C task', () => {
  it.each<[Json, number | undefined]>([
    [37, 37],
    ['37', 37],
    ['37.4 %', 37],
    [1, 1],
    [0.37, 37],
    ['0.37', 37],
    ['0.4%', 0],
    [140, 100],
    [-5, 0],
    ['', undefined],
    ['half', undefined],
    [null, undefined],
    [true, undefined],
    [[], undefined],
  ])('is read from %j as %s', (progress, percent) => {
    expect(observed({ task_id: 't', status: 'running', progress }).progress).toBe(percent);
  });

  it('is found in the task, in its envelope, and in `info`', () => {
    expect(observed(row({ status: 'IN_PROGRESS', progress: '30%' })).progress).toBe(30);
    expect(observed({ progress: 12, data: { status: 'running' } }).progress).toBe(12);
    expect(observed({ id: 't', status: 'running', info: { progress: 0.5 } }).progress).toBe(50);
  });

  it('does not mean success at 100%', () => {
    expect(observed({ task_id: 't', status: 'running', progress: 100, url: video }).state).toBe('running');
  });
});

describe('the reason why a task failed', () => {
  const [policy, violation] = ['content_policy', 'content policy violation'];
  const none = 'The task ended with status "FAILURE" and gave no reason.';
  const base_resp = { status_code: 1027, status_msg: 'output' };
  it.each<[string, Json, string, string?, string?]>([
    ['fail_reason', row({ status: 'FAILURE', fail_reason: 'no luck' }), 'no luck'],
    ['result_url that is a reason', row({ status: 'FAILURE', result_url: 'no luck' }), 'no luck'],
    ['error', { id: 't', status: 'failed', error: { code: 'E7', message: 'no luck' } }, 'no luck', 'E7'],
    ['a bare error', { id: 't', status: 'failed', error: 'no luck' }, 'no luck'],
    ['a code', { task: { status: 'failed', error: { code: '1026', message: 'x' } } }, 'x', '1026', policy],
    ['a message', row({ status: 'FAILURE', fail_reason: violation }), violation, undefined, policy],
    ['task_status_msg', { code: 0, data: { task_status: 'failed', task_status_msg: 'no luck' } }, 'no luck'],
    ['reason', { status: 'Failed', reason: 'no luck' }, 'no luck'],
    ['output', { output: { task_status: 'FAILED', code: 'Bad', message: 'no luck' } }, 'no luck', 'Bad'],
    [
      'the envelope',
      { output: { task_status: 'FAILED' }, code: 'Bad', message: 'no luck' },
      'no luck',
      'Bad',
    ],
    ['err_code', { id: 't', state: 'failed', err_code: 'NoCredit' }, 'NoCredit', 'NoCredit'],
    ['base_resp', { task_id: 't', status: 'Fail', base_resp }, 'output', '1027', policy],
    ['JSON in the text', row({ status: 'FAILURE', fail_reason: '{"error":{"message":"no"}}' }), 'no'],
    ['nothing, if fail_reason is empty', row({ status: 'FAILURE', fail_reason: '' }), none],
    ['nothing, if fail_reason is a URL', row({ status: 'FAILURE', fail_reason: video }), none],
  ])('is read from %s', (_, answer, message, nativeCode, code = 'task_failed') => {
    const seen = observed(answer);
    expect(seen).toMatchObject({ state: 'failed', results: [], failure: { code, message } });
    expect(seen.failure?.nativeCode).toBe(nativeCode);
    expect(seen.progress).toBeUndefined();
  });
});
