import { describe, expect, it } from 'vitest';
import type { Json } from '../../../src/json.ts';
import { c } from '../../../src/protocols/c/protocol.ts';
import { replyOf } from '../conformance.ts';

const error = (message: string, code?: string): Json => ({
  error: { message, type: 'x', ...(code ? { code } : {}) },
});

describe('a response sent instead of the video', () => {
  it.each<[number, Json, string?]>([
    [400, error('Task is not completed yet, current status: IN_PROGRESS')],
    [400, error('Task is not completed yet, current status: QUEUED')],
    [400, error('Task is not completed yet, current status: POLISHING')],
    [400, error('Task is not completed yet')],
    [404, { detail: 'Generation is still in-progress' }],
    [404, error('Video is not ready', 'video_not_ready')],
    [404, error('nope', 'not_ready')],
    [409, error('The video is being generated')],
    [422, error('Task is not completed yet, current status: IN_PROGRESS')],
    [425, error('too early')],
    [202, {}],
    [202, { status: 'processing' }],
    [200, { task_id: 't', status: 'queued' }],
    [200, { code: 'success', data: { status: 'IN_PROGRESS' } }],
    [200, error('Task is not completed yet, current status: IN_PROGRESS')],
  ])('means that the video is not ready: HTTP %i, %j', (status, body) => {
    expect(c.notReady(replyOf({ status, body }))).toBe(true);
  });

  it.each<[number, Json]>([
    [400, error('Task is not completed yet, current status: FAILURE')],
    [400, error('Task is not completed yet, current status: failed')],
    [400, error('Task not completed: generation failed')],
    [422, { detail: 'Video generation failed: still processing' }],
    [422, { detail: [{ loc: ['path', 'video_id'], msg: 'value is not a valid id', type: 'x' }] }],
    [400, { detail: 'Please use the cloud URL: https://example.com/x' }],
    [404, error('Task not found')],
    [404, error('Invalid URL (GET /v1/videos/x/content)')],
    [401, error('not ready')],
    [403, error('request blocked: not ready')],
    [500, error('not ready')],
    [502, error('Failed to fetch video content')],
    [200, {}],
    [200, null],
    [200, { task_id: 't', status: 'failed' }],
    [200, { task_id: 't', status: 'completed' }],
    [202, error('quota is exhausted')],
  ])('does not mean that the video is not ready: HTTP %i, %j', (status, body) => {
    expect(c.notReady(replyOf({ status, body }))).toBe(false);
  });

  it.each(['', '<html>gone</html>', '\u0000\u0001ftyp'])(
    'does not mean that the video is not ready if it is not JSON: %j',
    (text) => {
      expect(c.notReady(replyOf({ status: 404, text }))).toBe(false);
    },
  );
});
