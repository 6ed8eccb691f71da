import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { verify } from '../../src/sandbox/verify.ts';
import type { Answer, TestSandbox } from './harness.ts';
import { sandbox } from './harness.ts';

const BODY = { model: 'vendor-h3', prompt: 'a red kite', duration: 4 };

async function submit(gateway: TestSandbox, body: object = BODY, headers = {}): Promise<string> {
  return (await gateway.call('POST', '/v1/videos', { body, headers })).at('task_id') as string;
}

function findings(gateway: TestSandbox, minPollMs?: number): string[] {
  return verify(gateway.stateDir, { minPollMs, now: gateway.clock.now }).map(({ kind }) => kind);
}

test('sandbox verify reports nothing for a run without mistakes', async () => {
  const gateway = await sandbox();
  const id = await submit(gateway);
  await gateway.call('GET', `/v1/videos/${id}`);
  gateway.clock.now += 5000;
  await gateway.call('GET', `/v1/videos/${id}`);
  await gateway.call('GET', `/v1/videos/${id}/content`);
  expect(findings(gateway, 5000)).toEqual([]);
});

describe('a double charge found by sandbox verify', () => {
  test('is reported for the same body with the same key, regardless of member order and path', async () => {
    const gateway = await sandbox();
    const first = await submit(gateway);
    const turned = Object.fromEntries(Object.entries(BODY).reverse());
    const second = await gateway.call('POST', '/v1/video/generations', { body: turned });
    const [finding] = verify(gateway.stateDir, { now: gateway.clock.now });
    expect(finding).toMatchObject({ kind: 'charged-twice', tasks: [first, second.at('task_id')] });
  });

  test('is not reported for a different body or a different key', async () => {
    const gateway = await sandbox({ keys: ['other-key'] });
    await submit(gateway);
    await submit(gateway, { ...BODY, prompt: 'a blue kite' });
    await submit(gateway, BODY, { Authorization: 'Bearer other-key' });
    expect(findings(gateway)).toEqual([]);
  });

  test('is not reported for a retry after a refund', async () => {
    const gateway = await sandbox({ faults: ['task-failsx1'] });
    await submit(gateway);
    gateway.clock.now += 1000;
    await submit(gateway);
    expect(findings(gateway)).toEqual([]);
  });

  const ROW = { model: 'vendor-h3-mini', prompt: 'a red kite', duration: 5, aspect_ratio: '16:9', seed: 1 };
  const similar: [string, object][] = [
    ['an omitted default', { ...ROW, duration: undefined }],
    ['ratio in place of aspect_ratio', { ...ROW, aspect_ratio: undefined, ratio: '16:9' }],
    ['a different seed', { ...ROW, seed: 2 }],
    ['a different model', { ...ROW, model: 'vendor-h3-base' }],
    ['an added field', { ...ROW, prompt_optimization: true }],
  ];
  test.each(similar)(
    'is reported for a body that differs only by %s if the first response was lost',
    async (_, other) => {
      const lost = await sandbox({ faults: ['submit-reply-lostx1'] });
      await submit(lost, ROW).catch(() => undefined);
      const second = await submit(lost, other);
      const [first] = readBill(lost.stateDir);
      const [finding] = verify(lost.stateDir, { now: lost.clock.now });
      expect(finding).toMatchObject({ kind: 'charged-twice', tasks: [first?.task, second] });
      expect(finding?.message).toMatch(
        /^After the response to task_\w+ was lost, .* charged 2 times, \d+ credits in all\.$/,
      );
    },
  );

  test('is not reported for a similar body if the first response arrived', async () => {
    const gateway = await sandbox();
    await submit(gateway, ROW);
    for (const [, other] of similar) await submit(gateway, other);
    expect(findings(gateway)).toEqual([]);
  });

  test('is reported for the same request in a different protocol after a lost response', async () => {
    const gateway = await sandbox({ faults: ['submit-reply-lostx1'] });
    await submit(gateway, ROW).catch(() => undefined);
    const body = { instances: [{ prompt: 'a red kite' }] };
    await gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { body });
    expect(findings(gateway)).toEqual(['charged-twice']);
  });

  test('is not reported if a different row is submitted after a lost response', async () => {
    const gateway = await sandbox({ faults: ['submit-reply-lostx1'] });
    await submit(gateway, ROW).catch(() => undefined);
    await submit(gateway, { ...ROW, prompt: 'a blue kite' });
    expect(findings(gateway)).toEqual([]);
  });
});

/** Polls a new task with the given pauses, in ms, and then fetches the result. */
async function pollAndFetch(
  gateway: TestSandbox,
  pauses: number[],
  agent = 'curl/8',
  prompt = 'a red kite',
): Promise<void> {
  const path = `/v1/videos/${await submit(gateway, { ...BODY, prompt })}`;
  const headers = { 'User-Agent': agent };
  for (const pause of [0, ...pauses]) {
    gateway.clock.now += pause;
    await gateway.call('GET', path, { headers });
  }
  gateway.clock.now += 60_000;
  await gateway.call('GET', `${path}/content`);
}

describe('polling too fast, as checked by sandbox verify,', () => {
  test('is reported only if it violates the specification', async () => {
    const gateway = await sandbox({ paceMs: 10_000 });
    const polls: [string, number[], number][] = [
      ['one second', [1000], 1],
      ['slightly less than 5 s', [4990], 0],
      ['clearly less than 5 s', [4400], 1],
      ['one fast poll among others', [6000, 3000, 6000], 1],
      ['quick polls after the end of the task', [10_000, 100, 100], 0],
    ];
    let total = 0;
    for (const [name, pauses, expected] of polls) {
      await pollAndFetch(gateway, pauses, 'curl/8', name);
      total += expected;
      expect(findings(gateway), name).toEqual(Array.from({ length: total }, () => 'polled-too-fast'));
    }
  });

  test('is not reported for mgw, because mgw polls faster only on loopback', async () => {
    const gateway = await sandbox({ paceMs: 10_000 });
    await pollAndFetch(gateway, [200, 200], 'mgw/0.1.0');
    expect(findings(gateway)).toEqual([]);
  });

  test('is not reported for a retry after a truncated response', async () => {
    const gateway = await sandbox({ paceMs: 10_000, faults: ['poll-cutx2'] });
    const path = `/v1/videos/${await submit(gateway)}`;
    for (const pause of [0, 1000, 2000]) {
      gateway.clock.now += pause;
      await gateway.call('GET', path).catch(() => undefined);
    }
    expect(findings(gateway)).toEqual([]);
    gateway.clock.now += 2000;
    await gateway.call('GET', path);
    expect(findings(gateway)).toEqual(['polled-too-fast']);
  });

  test('is reported if the result is requested repeatedly, but not if it is requested once, right after the status', async () => {
    const gateway = await sandbox({ paceMs: 20_000 });
    const path = `/v1/videos/${await submit(gateway)}`;
    const look = async (pause: number): Promise<void> => {
      gateway.clock.now += pause;
      expect((await gateway.call('GET', `${path}/content`)).status).toBe(400);
    };
    await gateway.call('GET', path);
    await look(100);
    await look(5000);
    expect(findings(gateway)).toEqual([]);
    await look(1000);
    expect(findings(gateway)).toEqual(['polled-too-fast']);
  });

  test('is reported for any client that polls faster than --min-poll', async () => {
    const gateway = await sandbox();
    await pollAndFetch(gateway, [900], 'mgw/0.1.0');
    expect(findings(gateway, 901)).toEqual(['polled-too-fast']);
    expect(findings(gateway, 900)).toEqual([]);
  });
});

test('sandbox verify ignores events before the start of the run', async () => {
  const gateway = await sandbox();
  const id = await submit(gateway);
  await submit(gateway);
  await gateway.call('GET', `/v1/videos/${id}`);
  gateway.clock.now += 1000;
  const options = { minPollMs: 5000, since: gateway.clock.now, now: gateway.clock.now };
  await gateway.call('GET', `/v1/videos/${id}`);
  expect(verify(gateway.stateDir, options)).toEqual([]);
  expect(
    verify(gateway.stateDir, { ...options, since: options.since - 1000 }).map(({ kind }) => kind),
  ).toEqual(['charged-twice', 'polled-too-fast', 'never-fetched', 'never-fetched']);
});

describe('a finished task, as checked by sandbox verify,', () => {
  test('is reported as never fetched if its file was not sent completely', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway);
    const path = `/v1/videos/${id}/content`;
    expect(findings(gateway)).toEqual([]);
    gateway.clock.now += 1000;
    expect(findings(gateway)).toEqual(['never-fetched']);
    await gateway.call('HEAD', path);
    await gateway.call('GET', path, { headers: { Range: 'bytes=0-99' } });
    expect(findings(gateway)).toEqual(['never-fetched']);
    await gateway.call('GET', path, { headers: { Range: 'bytes=100-' } });
    expect(findings(gateway)).toEqual([]);
  });

  test('is not reported if a fault withheld the handle from the client, unless the client polls the task', async () => {
    const faults = [
      'submit-reply-lost',
      'submit-500-after-accept',
      'submit-garbled',
      'submit-empty',
      'submit-cut',
    ];
    const gateway = await sandbox({ faults: faults.map((fault) => `${fault}x1`) });
    for (const prompt of faults) await submit(gateway, { ...BODY, prompt }).catch(() => undefined);
    gateway.clock.now += 1000;
    expect(findings(gateway)).toEqual([]);
    for (const { task } of readBill(gateway.stateDir)) await gateway.call('GET', `/v1/videos/${task}`);
    expect(findings(gateway)).toEqual(faults.map(() => 'never-fetched'));
  });

  test('is reported if any byte of its file was not sent', async () => {
    const gateway = await sandbox();
    const path = `/v1/videos/${await submit(gateway)}/content`;
    gateway.clock.now += 1000;
    const get = (range: string): Promise<Answer> => gateway.call('GET', path, { headers: { Range: range } });
    const total = Number((await get('bytes=-10')).headers.get('content-range')?.split('/')[1]);
    await get('bytes=0-4999');
    await get('bytes=5001-');
    expect(findings(gateway)).toEqual(['never-fetched']);
    await get('bytes=4000-6000');
    expect(findings(gateway)).toEqual([]);
    expect(total).toBeGreaterThan(6000);
  });

  test('is not reported if the script reports failure', async () => {
    const gateway = await sandbox();
    await submit(gateway);
    await submit(gateway, { ...BODY, prompt: '[fail]' });
    gateway.clock.now += 1000;
    expect(findings(gateway)).toEqual(['never-fetched', 'failure-ignored']);
    expect(verify(gateway.stateDir, { now: gateway.clock.now, succeeded: false })).toEqual([]);
  });

  test('is reported until every sample, or the operation that contains an inline result, is fetched', async () => {
    const gateway = await sandbox();
    const finish = async (model: string): Promise<string> => {
      const body = { instances: [{ prompt: 'x' }], parameters: { durationSeconds: 4, sampleCount: 2 } };
      const answer = await gateway.call('POST', `/v1beta/models/${model}:predictLongRunning`, { body });
      gateway.clock.now += 1000;
      return `/v1beta/${answer.at('name') as string}`;
    };
    const done = await gateway.call('GET', await finish('video-a'));
    const samples = done.at('response.generateVideoResponse.generatedSamples') as {
      video: { uri: string };
    }[];
    for (const { video } of samples) {
      expect(findings(gateway)).toEqual(['never-fetched']);
      await gateway.call('GET', video.uri);
    }
    expect(findings(gateway)).toEqual([]);
    const inline = await finish('video-a-inline');
    expect(findings(gateway)).toEqual(['never-fetched']);
    await gateway.call('GET', inline);
    expect(findings(gateway)).toEqual([]);
  });
});

describe('an ignored failure found by sandbox verify', () => {
  test('is reported for a failed task unless the same request was tried again', async () => {
    const gateway = await sandbox({ faults: ['task-failsx1'] });
    const id = await submit(gateway);
    expect(findings(gateway)).toEqual([]);
    gateway.clock.now += 1000;
    const message = `${id} failed, but the script still exited with 0.`;
    expect(verify(gateway.stateDir, { now: gateway.clock.now })).toEqual([
      { kind: 'failure-ignored', tasks: [id], message },
    ]);
    await submit(gateway);
    expect(findings(gateway)).toEqual([]);
  });

  test('is reported for an operation that was filtered', async () => {
    const gateway = await sandbox({ faults: ['a-filtered'] });
    const body = { instances: [{ prompt: 'x' }] };
    await gateway.call('POST', '/v1beta/models/video-a:predictLongRunning', { body });
    gateway.clock.now += 1000;
    expect(findings(gateway)).toEqual(['failure-ignored']);
  });

  test('is not reported for a task whose handle never arrived', async () => {
    const gateway = await sandbox({ faults: ['task-fails', 'submit-reply-lost'] });
    await submit(gateway).catch(() => undefined);
    gateway.clock.now += 1000;
    expect(findings(gateway)).toEqual([]);
  });

  test('is reported for a speech stream that fails by any fault', async () => {
    const faults = ['tts-cut', 'tts-reset', 'tts-error-frame'];
    const gateway = await sandbox({ faults: faults.map((fault) => `${fault}x1`) });
    const headers = { 'X-Api-Key': gateway.key, 'X-Api-Resource-Id': 'speech-tts-2.0' };
    const speak = (word: string): Promise<unknown> => {
      const body = { req_params: { text: `${word} `.repeat(20) } };
      return gateway.call('POST', '/api/v3/tts/unidirectional', { body, headers }).catch(() => undefined);
    };
    for (const word of faults) await speak(word);
    await expect.poll(() => findings(gateway)).toEqual(faults.map(() => 'failure-ignored'));
    gateway.clock.now += 1;
    await speak('tts-cut');
    // Even an incomplete response is charged.
    expect(findings(gateway)).toEqual(['charged-twice', 'failure-ignored', 'failure-ignored']);
  });

  test('is reported for a streamed response that failed or has no end', async () => {
    const gateway = await sandbox({ faults: ['responses-cutx1'] });
    const ask = (input: string): Promise<Answer> =>
      gateway.call('POST', '/v1/responses', { body: { model: 'text-1', input, stream: true } });
    await ask('one');
    expect(findings(gateway)).toEqual(['failure-ignored']);
    await ask('two [response-fails]');
    await ask('three');
    expect(findings(gateway)).toEqual(['failure-ignored', 'failure-ignored']);
  });
});
