import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import { sandbox, type Answer, type TestSandbox } from './harness.ts';

const OFFICIAL = { model: 'vendor-h3', prompt: 'a red kite', duration: 4, resolution: '768P' };
const SELF_HOSTED = { model: 'vendor-h3-mini', prompt: 'a red kite', duration: 5 };

async function submit(gateway: TestSandbox, body: object, path = '/v1/videos'): Promise<string> {
  const answer = await gateway.call('POST', path, { body });
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.at('task_id') as string;
}

describe('a Protocol C submission to the sandbox', () => {
  test.each(['/v1/videos', '/v1/video/generations'])(
    'receives the task if it is sent to %s',
    async (path) => {
      const gateway = await sandbox();
      const answer = await gateway.call('POST', path, { body: OFFICIAL });
      expect(answer.status).toBe(200);
      const id = answer.at('id');
      expect(id).toMatch(/^task_[0-9a-z]{32}$/);
      expect(answer.body).toEqual({
        id,
        task_id: id,
        object: 'video',
        model: 'vendor-h3',
        status: 'queued',
        progress: 0,
        created_at: 1_795_000_000,
      });
    },
  );

  const invalid: [string, object, string][] = [
    ['no model', { prompt: 'x' }, 'invalid_request'],
    ['an empty prompt', { ...SELF_HOSTED, prompt: ' ' }, 'invalid_request'],
    ['an empty prompt for the official model', { ...OFFICIAL, prompt: '' }, 'invalid_request'],
    ['3 seconds', { ...OFFICIAL, duration: 3 }, 'invalid_duration'],
    ['16 seconds', { ...OFFICIAL, duration: 16 }, 'invalid_duration'],
    ['a duration of 1e308 seconds', { ...SELF_HOSTED, duration: 1e308 }, 'invalid_duration'],
    ['a duration as text', { ...OFFICIAL, duration: '5' }, 'invalid_duration'],
    ['a negative duration', { ...SELF_HOSTED, duration: -5 }, 'invalid_duration'],
    ['720p for the official model', { ...OFFICIAL, resolution: '720p' }, 'invalid_resolution'],
    ['2k in lower case', { ...OFFICIAL, resolution: '2k' }, 'invalid_resolution'],
    ['an unsupported ratio', { ...OFFICIAL, aspect_ratio: '2:1' }, 'invalid_ratio'],
    ['ten references', { ...OFFICIAL, reference_image_urls: urls(10) }, 'invalid_image_count'],
    ['four reference videos', { ...OFFICIAL, reference_video_urls: urls(4) }, 'invalid_request'],
    ['four reference audios', { ...OFFICIAL, reference_audio_urls: urls(4) }, 'invalid_request'],
    ['an unknown mode', { ...OFFICIAL, generation_mode: 't2va' }, 'invalid_request'],
    ['i2v without an image', { ...OFFICIAL, generation_mode: 'i2v' }, 'invalid_image_count'],
    ['r2v without a reference', { ...OFFICIAL, generation_mode: 'r2v' }, 'invalid_request'],
    ['a data URL', { ...OFFICIAL, image: 'data:image/png;base64,AA==' }, 'invalid_request'],
    ['images that are not an array', { ...OFFICIAL, images: 'https://a.example.com/1' }, 'invalid_request'],
  ];
  test('is refused, and costs nothing, if its body or its model is invalid', async () => {
    const gateway = await sandbox();
    const post = (body: unknown, headers = {}): Promise<Answer> =>
      gateway.call('POST', '/v1/videos', { body, headers });
    for (const [fault, body, code] of invalid) {
      const answer = await post(body);
      expect([answer.status, answer.at('code') ?? answer.at('error.code')], fault).toEqual([400, code]);
    }
    for (const model of ['vendor-h4', 'Vendor-H3', 'video-a']) {
      const answer = await post({ ...OFFICIAL, model });
      expect([answer.status, answer.at('error.code')], model).toEqual([503, 'model_not_found']);
    }
    for (const text of ['not json', '[]', 'null', '"text"', '']) expect((await post(text)).status).toBe(400);
    expect((await post(OFFICIAL, { 'Content-Type': 'text/plain' })).status).toBe(400);
    expect(readBill(gateway.stateDir)).toEqual([]);
  });

  test('is charged for the declared seconds', async () => {
    const gateway = await sandbox();
    const priced: [object, number][] = [
      [OFFICIAL, 40],
      [{ model: 'vendor-h3', prompt: 'x' }, 50],
      [{ ...OFFICIAL, resolution: '2K' }, 80],
      // A self-hosted model has no such tier.
      [{ ...SELF_HOSTED, resolution: '2K' }, 10],
      [{ ...SELF_HOSTED, duration: 5.1 }, 10.2],
      [{ ...SELF_HOSTED, duration: 4 }, 8],
      [{ ...SELF_HOSTED, duration: 100 }, 200],
      [{ model: 'vendor-h3-mini', prompt: 'x', seconds: '7' }, 14],
    ];
    for (const [body] of priced) await submit(gateway, body);
    const bill = readBill(gateway.stateDir);
    expect(bill.map(({ amount }) => amount)).toEqual(priced.map(([, amount]) => amount));
    expect(bill[0]).toMatchObject({ area: 'c', at: gateway.clock.now });
  });
});

describe('a self-hosted model of the sandbox', () => {
  test('accepts but ignores values that the official model refuses', async () => {
    const gateway = await sandbox();
    const fields: [object, string][] = [
      [{ duration: 4 }, '5'],
      [{ duration: 20 }, '15'],
      [{ resolution: '2K' }, '5'],
      [{ reference_video_urls: urls(1) }, '5'],
      [{ aspect_ratio: '2:1' }, '5'],
      [{ prompt: '🪁'.repeat(30_000) }, '5'],
    ];
    for (const [field, seconds] of fields) {
      const id = await submit(gateway, { ...SELF_HOSTED, ...field });
      gateway.clock.now += 1000;
      const { body } = await gateway.call('GET', `/v1/videos/${id}`);
      expect(body, JSON.stringify(field)).toMatchObject({ status: 'completed', seconds, size: '1280x720' });
    }
  });

  test('accepts a task that cannot succeed, but then fails and refunds the task', async () => {
    const gateway = await sandbox();
    const fields: object[] = [
      { prompt: '🪁'.repeat(30_001) },
      { reference_image_urls: urls(10) },
      { generation_mode: 'r2v' },
      { image: 'http://192.168.1.2/a.png' },
      { image: 'http://127.0.0.1/a.png' },
    ];
    for (const field of fields) {
      const id = await submit(gateway, { ...SELF_HOSTED, ...field });
      gateway.clock.now += 1000;
      expect((await gateway.call('GET', `/v1/videos/${id}`)).at('status')).toBe('failed');
    }
    const bill = readBill(gateway.stateDir, gateway.clock.now);
    expect(bill.map(({ amount, refunded }) => [amount, refunded])).toEqual(fields.map(() => [10, true]));
  });
});

describe('a Protocol C task in the sandbox', () => {
  test('is queued, runs with a percentage, and then ends', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, OFFICIAL);
    const seen: unknown[] = [];
    for (const elapsed of [0, 199, 200, 500, 999, 1000, 90_000]) {
      gateway.clock.now = 1_795_000_000_000 + elapsed;
      const task = await gateway.call('GET', `/v1/video/generations/${id}`);
      const video = await gateway.call('GET', `/v1/videos/${id}`);
      seen.push([task.at('data.status'), task.at('data.progress'), video.at('status'), video.at('progress')]);
    }
    expect(seen).toEqual([
      ['QUEUED', '0%', 'queued', 0],
      ['QUEUED', '0%', 'queued', 0],
      ['IN_PROGRESS', '20%', 'in_progress', 20],
      ['IN_PROGRESS', '50%', 'in_progress', 50],
      ['IN_PROGRESS', '99%', 'in_progress', 99],
      ['SUCCESS', '100%', 'completed', 100],
      ['SUCCESS', '100%', 'completed', 100],
    ]);
  });

  test('contains the reason if it fails, and is then refunded', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, { ...OFFICIAL, prompt: 'x [fail]' });
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBeUndefined();
    gateway.clock.now += 1000;
    const answer = await gateway.call('GET', `/v1/video/generations/${id}`);
    expect(answer.at('data')).toMatchObject({
      status: 'FAILURE',
      fail_reason: 'The generation failed.',
      task_id: id,
    });
    expect(readBill(gateway.stateDir, gateway.clock.now)[0]?.refunded).toBe(true);
    expect((await gateway.call('GET', `/v1/videos/${id}/content`)).status).toBe(400);
  });

  test('is not visible to a different key', async () => {
    const gateway = await sandbox({ keys: ['other-key'] });
    const id = await submit(gateway, OFFICIAL);
    gateway.clock.now += 1000;
    const headers = { Authorization: 'Bearer other-key' };
    const query = await gateway.call('GET', `/v1/video/generations/${id}`, { headers });
    expect([query.status, query.at('code')]).toEqual([400, 'task_not_exist']);
    expect((await gateway.call('GET', `/v1/videos/${id}/content`, { headers })).status).toBe(404);
  });

  test('is not found by an id that was never issued', async () => {
    const gateway = await sandbox();
    for (const id of ['task_0', '..%2F..%2Fbill', 'a%00b', '%'])
      expect((await gateway.call('GET', `/v1/video/generations/${id}`)).at('code')).toBe('task_not_exist');
  });

  test('continues at the same speed after the process that created it has exited', async () => {
    const first = await sandbox();
    const id = await submit(first, OFFICIAL);
    await first.close();
    const second = await sandbox({ stateDir: first.stateDir, paceMs: 60_000 });
    second.clock.now += 1000;
    expect((await second.call('GET', `/v1/videos/${id}`)).at('status')).toBe('completed');
  });
});

describe("a sandbox task's content", () => {
  test('is refused until the task has succeeded', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, OFFICIAL);
    const answer = await gateway.call('GET', `/v1/videos/${id}/content`);
    expect(answer.status).toBe(400);
    expect(answer.at('error.message')).toBe('Task is not completed yet, current status: QUEUED');
  });

  test('is the same MP4 each time, and is served in ranges with a strong validator', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, OFFICIAL);
    gateway.clock.now += 1000;
    const path = `/v1/videos/${id}/content`;
    const whole = await gateway.call('GET', path);
    expect([whole.status, whole.headers.get('content-type')]).toEqual([200, 'video/mp4']);
    expect((await gateway.call('GET', path)).bytes.equals(whole.bytes)).toBe(true);
    const etag = whole.headers.get('etag') ?? '';
    const total = whole.bytes.length;
    const part = await gateway.call('GET', path, { headers: { Range: 'bytes=100-', 'If-Range': etag } });
    expect([part.status, part.headers.get('content-range')]).toEqual([
      206,
      `bytes 100-${total - 1}/${total}`,
    ]);
    expect(part.bytes.equals(whole.bytes.subarray(100))).toBe(true);
    const stale = await gateway.call('GET', path, {
      headers: { Range: 'bytes=100-', 'If-Range': '"other"' },
    });
    expect([stale.status, stale.bytes.length]).toEqual([200, total]);
    const beyond = await gateway.call('GET', path, { headers: { Range: `bytes=${total}-` } });
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, `bytes */${total}`]);
    const head = await gateway.call('HEAD', path);
    expect([head.status, head.headers.get('content-length'), head.bytes.length]).toEqual([
      200,
      String(total),
      0,
    ]);
  });
});

function urls(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `https://assets.example.com/${index}.png`);
}
