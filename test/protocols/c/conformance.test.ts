import { c } from '../../../src/protocols/c/protocol.ts';
import { conformance } from '../conformance.ts';

const url = 'https://cdn.example.com/a.png';
const handle = 'task_AbCdEfGhIjKlMnOpQrStUvWxYz012345';
const envelope = (message: string, code = '') => ({ error: { message, type: 'new_api_error', code } });
const wrapped = (data: object) => ({
  code: 'success',
  message: '',
  data: { id: 1042, task_id: handle, ...data },
});

await conformance(c, {
  body: { model: 'vendor-h3-mini', prompt: 'a cat', duration: 5, resolution: '720p', aspect_ratio: '16:9' },
  handle,
  flags: {
    model: 'vendor-h3',
    prompt: 'a cat',
    duration: '5',
    resolution: '2K',
    'aspect-ratio': '16:9',
    mode: 't2v',
    'prompt-optimization': false,
    image: url,
    images: [url],
    'last-frame': url,
    'reference-image': [url, url],
    'reference-video': [url],
    'reference-audio': [url],
    'input-reference': url,
  },
  submission: {
    accepted: [
      {
        name: 'current',
        handle,
        body: {
          id: handle,
          task_id: handle,
          object: 'video',
          model: 'm',
          status: 'queued',
          progress: 0,
          created_at: 1795190000,
        },
      },
      { name: 'id only', handle, body: { id: handle, object: 'video', model: '', status: 'queued' } },
      { name: 'data is the id', handle, body: { code: 'success', message: '', data: handle } },
      { name: 'wrapped list', handle, body: { code: 200, data: [{ status: 'submitted', task_id: handle }] } },
      {
        name: 'wrapped',
        handle: '789654321',
        body: {
          code: 0,
          message: 'SUCCEED',
          request_id: 'r-1',
          data: { task_id: '789654321', task_status: 'submitted', created_at: 1795190000000 },
        },
      },
      {
        name: 'next to an output',
        handle,
        otherIds: ['r-1'],
        body: { output: { task_id: handle, task_status: 'PENDING' }, request_id: 'r-1' },
      },
      {
        name: 'next to a good base_resp',
        handle,
        body: { task_id: handle, base_resp: { status_code: 0, status_msg: 'success' } },
      },
      {
        name: 'with an error',
        handle,
        body: { id: handle, task_id: handle, error: { code: 'late', message: 'queue is slow' } },
      },
    ],
    rejected: [
      { name: 'no key', status: 401, body: envelope('Invalid token (request id: 1)') },
      {
        name: 'no balance',
        status: 403,
        body: envelope('用户额度不足, 剩余额度: ＄0.1', 'insufficient_user_quota'),
      },
      {
        name: 'no model',
        status: 503,
        body: envelope('No available channel for model x under group y (distributor)', 'model_not_found'),
      },
      {
        name: 'bad value',
        status: 400,
        body: { code: 'invalid_duration', message: 'duration must be 5 to 15', data: null },
      },
      {
        name: 'balance with 200',
        body: { task_id: '', base_resp: { status_code: 1008, status_msg: 'insufficient balance' } },
      },
      { name: 'redirected', status: 307, headers: { location: 'https://other.example/' }, text: '' },
    ],
    unavailable: [
      { name: 'rate limit', status: 429, body: envelope('您已达到请求数限制：1分钟内最多请求10次') },
      { name: 'empty 429', status: 429, text: '' },
      { name: 'overloaded', status: 503, body: envelope('The upstream is overloaded') },
    ],
    unknown: [
      {
        name: 'server error',
        status: 500,
        body: { code: 'do_request_failed', message: '请求上游地址失败', data: null },
      },
      { name: 'a proxy away', status: 503, text: '<html>503</html>' },
      { name: 'empty', text: '' },
      { name: 'no members', body: {} },
      { name: 'null', body: null },
      { name: 'no id', body: { code: 'success', message: '', data: null } },
      { name: 'HTML', text: '<!doctype html><title>console</title>' },
      { name: 'an error of no known kind', body: { code: 'do_request_failed', message: 'eof', data: null } },
    ],
  },
  query: {
    queued: [
      {
        name: 'wrapped',
        body: wrapped({ status: 'NOT_START', progress: '0%', fail_reason: '', data: null }),
      },
      {
        name: 'unknown right after submission',
        body: { id: handle, object: 'video', status: 'unknown', progress: 0, metadata: { url: '' } },
      },
    ],
    running: [
      {
        name: 'wrapped',
        body: wrapped({
          status: 'IN_PROGRESS',
          progress: '37%',
          fail_reason: '',
          data: { task_status: 'succeed' },
        }),
      },
      {
        name: 'flat',
        body: { task_id: handle, status: 'processing', url: '', error: { code: 0, message: '' } },
      },
      {
        name: 'in an envelope with a word of its own',
        body: { status: 'success', message: 'ok', data: { task_id: handle, status: 'processing' } },
      },
      {
        name: 'numbers that are no words',
        body: { code: 10000, status: 10000, message: 'Success', data: { status: 'generating' } },
      },
    ],
    succeeded: [
      {
        name: 'wrapped',
        body: wrapped({
          status: 'SUCCESS',
          progress: '100%',
          fail_reason: '',
          result_url: 'https://cdn.example.com/v.mp4',
          data: { video: 1 },
        }),
      },
      {
        name: 'without a URL',
        body: {
          created_at: 1,
          fail_reason: '',
          finished_at: 2,
          platform: '1',
          progress: '100%',
          status: 'SUCCESS',
          task_id: handle,
        },
      },
      {
        name: 'flat',
        body: {
          task_id: handle,
          status: 'completed',
          url: 'https://cdn.example.com/v.mp4',
          format: 'mp4',
          metadata: { duration: 5, fps: 24 },
          error: { code: 0, message: '' },
        },
      },
    ],
    failed: [
      {
        name: 'wrapped',
        body: wrapped({
          status: 'FAILURE',
          progress: '100%',
          fail_reason: 'upstream says no',
          result_url: 'upstream says no',
          data: null,
        }),
      },
      {
        name: 'flat',
        body: {
          id: handle,
          object: 'video',
          status: 'failed',
          progress: 100,
          error: { message: 'blocked', code: '1026' },
        },
      },
      {
        name: 'done with a bad code',
        body: { code: 50411, message: 'Pre Img Risk Not Pass', data: { status: 'done', video_url: '' } },
      },
    ],
    missing: [
      { name: '400', status: 400, body: { code: 'task_not_exist', message: 'task_not_exist', data: null } },
      { name: '404', status: 404, body: { code: 'task_not_exist', message: 'task_not_exist', data: null } },
      { name: '200', body: { code: 'task_not_exist', message: 'task_not_exist', data: null } },
    ],
    unauthorized: [{ name: '401', status: 401, body: envelope('Invalid token') }],
    again: [
      { name: 'no news', body: { code: 'success', message: '', data: null } },
      { name: 'rate limit', status: 429, text: '' },
      { name: 'bad gateway', status: 502, text: '<html></html>' },
      {
        name: 'no model',
        status: 503,
        body: envelope('No available channel for model x', 'model_not_found'),
      },
      { name: 'HTML', text: '<!doctype html>' },
      { name: 'no state', body: { task_id: handle } },
    ],
  },
});
