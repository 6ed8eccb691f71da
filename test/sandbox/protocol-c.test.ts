import { describe, expect, test } from 'vitest';
import { readBill } from '../../src/sandbox/bill.ts';
import type { TestSandbox } from './harness.ts';
import { sandbox } from './harness.ts';

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

  test.each<[string, object, number, string]>([
    ['no model', { prompt: 'x' }, 400, 'error.code=invalid_request'],
    ['an unknown model', { ...OFFICIAL, model: 'vendor-h4' }, 503, 'error.code=model_not_found'],
    ['a model in other letter case', { ...OFFICIAL, model: 'Vendor-H3' }, 503, 'error.code=model_not_found'],
    ["another protocol's model", { ...OFFICIAL, model: 'video-a' }, 503, 'error.code=model_not_found'],
    ['an empty prompt', { ...SELF_HOSTED, prompt: ' ' }, 400, 'code=invalid_request'],
    ['an empty prompt for the official model', { ...OFFICIAL, prompt: '' }, 400, 'code=invalid_request'],
    ['3 seconds', { ...OFFICIAL, duration: 3 }, 400, 'code=invalid_duration'],
    ['16 seconds', { ...OFFICIAL, duration: 16 }, 400, 'code=invalid_duration'],
    ['a duration of 1e308 seconds', { ...SELF_HOSTED, duration: 1e308 }, 400, 'code=invalid_duration'],
    ['a duration as text', { ...OFFICIAL, duration: '5' }, 400, 'code=invalid_duration'],
    ['a negative duration', { ...SELF_HOSTED, duration: -5 }, 400, 'code=invalid_duration'],
    ['720p for the official model', { ...OFFICIAL, resolution: '720p' }, 400, 'code=invalid_resolution'],
    ['2k in lower case', { ...OFFICIAL, resolution: '2k' }, 400, 'code=invalid_resolution'],
    ['an unsupported ratio', { ...OFFICIAL, aspect_ratio: '2:1' }, 400, 'code=invalid_ratio'],
    ['ten references', { ...OFFICIAL, reference_image_urls: urls(10) }, 400, 'code=invalid_image_count'],
    ['four reference videos', { ...OFFICIAL, reference_video_urls: urls(4) }, 400, 'code=invalid_request'],
    ['four reference audios', { ...OFFICIAL, reference_audio_urls: urls(4) }, 400, 'code=invalid_request'],
    ['an unknown mode', { ...OFFICIAL, generation_mode: 't2va' }, 400, 'code=invalid_request'],
    ['i2v without an image', { ...OFFICIAL, generation_mode: 'i2v' }, 400, 'code=invalid_image_count'],
    ['r2v without a reference', { ...OFFICIAL, generation_mode: 'r2v' }, 400, 'code=invalid_request'],
    ['a data URL', { ...OFFICIAL, image: 'data:image/png;base64,AA==' }, 400, 'code=invalid_request'],
    [
      'images that are not an array',
      { ...OFFICIAL, images: 'https://a.example.com/1.png' },
      400,
      'code=invalid_request',
    ],
  ])('is refused, and costs nothing, if it has %s', async (_, body, status, where) => {
    const gateway = await sandbox();
    const answer = await gateway.call('POST', '/v1/videos', { body });
    expect(answer.status).toBe(status);
    const [path = '', code] = where.split('=');
    expect(answer.at(path)).toBe(code);
    expect(readBill(gateway.stateDir)).toEqual([]);
  });

  test.each(['not json', '[]', 'null', '"text"', ''])(
    'is refused if its body is not a JSON object (%j)',
    async (body) => {
      const gateway = await sandbox();
      expect((await gateway.call('POST', '/v1/videos', { body })).status).toBe(400);
    },
  );

  test('is refused if its body is not declared as JSON', async () => {
    const gateway = await sandbox();
    const headers = { 'Content-Type': 'text/plain' };
    expect((await gateway.call('POST', '/v1/videos', { body: OFFICIAL, headers })).status).toBe(400);
  });

  test.each<[string, object, number]>([
    ['the official model', OFFICIAL, 40],
    ['the default duration', { model: 'vendor-h3', prompt: 'x' }, 50],
    ['2K at twice the price', { ...OFFICIAL, resolution: '2K' }, 80],
    ['2K of a self-hosted model, which has no such tier', { ...SELF_HOSTED, resolution: '2K' }, 10],
    ['a fraction of a second to the last digit', { ...SELF_HOSTED, duration: 5.1 }, 10.2],
    ['4 s of a self-hosted model', { ...SELF_HOSTED, duration: 4 }, 8],
    ['100 s of a self-hosted model', { ...SELF_HOSTED, duration: 100 }, 200],
    ['native seconds as text', { model: 'vendor-h3-mini', prompt: 'x', seconds: '7' }, 14],
  ])('is charged for the declared seconds (checked: %s)', async (_, body, amount) => {
    const gateway = await sandbox();
    const task = await submit(gateway, body);
    expect(readBill(gateway.stateDir)).toMatchObject([{ task, area: 'c', amount, at: gateway.clock.now }]);
  });
});

describe('a self-hosted model of the sandbox', () => {
  test.each<[string, object, string]>([
    ['4 s', { duration: 4 }, '5'],
    ['20 s', { duration: 20 }, '15'],
    ['2K', { resolution: '2K' }, '5'],
    ['a reference video', { reference_video_urls: urls(1) }, '5'],
    ['an unknown ratio', { aspect_ratio: '2:1' }, '5'],
  ])('accepts but ignores %s', async (_, field, made) => {
    const gateway = await sandbox();
    const id = await submit(gateway, { ...SELF_HOSTED, ...field });
    gateway.clock.now += 1000;
    const { body } = await gateway.call('GET', `/v1/videos/${id}`);
    expect(body).toMatchObject({ status: 'completed', seconds: made, size: '1280x720' });
  });

  test.each<[string, object]>([
    ['a prompt of 30,001 characters', { prompt: '🪁'.repeat(30_001) }],
    ['ten references', { reference_image_urls: urls(10) }],
    ['r2v without a reference', { generation_mode: 'r2v' }],
    ['an asset in a private network', { image: 'http://192.168.1.2/a.png' }],
    ['an asset on loopback', { image: 'http://127.0.0.1/a.png' }],
  ])('accepts %s, but then fails and refunds the task', async (_, field) => {
    const gateway = await sandbox();
    const id = await submit(gateway, { ...SELF_HOSTED, ...field });
    gateway.clock.now += 1000;
    expect((await gateway.call('GET', `/v1/videos/${id}`)).at('status')).toBe('failed');
    expect(readBill(gateway.stateDir, gateway.clock.now)).toMatchObject([{ amount: 10, refunded: true }]);
  });

  test('accepts a prompt of 30,000 characters', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, { ...SELF_HOSTED, prompt: '🪁'.repeat(30_000) });
    gateway.clock.now += 1000;
    expect((await gateway.call('GET', `/v1/videos/${id}`)).at('status')).toBe('completed');
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

  test.each(['task_0', '..%2F..%2Fbill', 'a%00b', '%'])(
    'is not found by an id that was never issued: %s',
    async (id) => {
      const gateway = await sandbox();
      expect((await gateway.call('GET', `/v1/video/generations/${id}`)).at('code')).toBe('task_not_exist');
    },
  );

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

  test('is the same MP4 each time', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, OFFICIAL);
    gateway.clock.now += 1000;
    const first = await gateway.call('GET', `/v1/videos/${id}/content`);
    const second = await gateway.call('GET', `/v1/videos/${id}/content`);
    expect(first.status).toBe(200);
    expect(first.headers.get('content-type')).toBe('video/mp4');
    expect(first.bytes.subarray(4, 8).toString('latin1')).toBe('ftyp');
    expect(second.bytes.equals(first.bytes)).toBe(true);
  });

  test('is served in ranges with a strong validator', async () => {
    const gateway = await sandbox();
    const id = await submit(gateway, OFFICIAL);
    gateway.clock.now += 1000;
    const path = `/v1/videos/${id}/content`;
    const whole = await gateway.call('GET', path);
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
