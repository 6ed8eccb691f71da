import { c } from '../../../src/protocols/c/protocol.ts';
import { conformance } from '../conformance.ts';

const url = 'https://cdn.example.com/a.png';
const handle = 'task_AbCdEfGhIjKlMnOpQrStUvWxYz012345';
const video = 'https://cdn.example.com/v.mp4';
const envelope = (message: string, code = '') => ({ error: { message, type: 'new_api_error', code } });
const answer = (code: string, message = code) => ({ code, message, data: null });
const wrapped = (status: string, members: object) => ({
  code: 'success',
  message: '',
  data: { id: 1042, task_id: handle, status, ...members },
});
const noChannel = envelope('No available channel for model x', 'model_not_found');

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
      { name: 'current', handle, body: { id: handle, task_id: handle, status: 'queued', progress: 0 } },
      { name: 'id only', handle, body: { id: handle, object: 'video', model: '', status: 'queued' } },
      { name: 'data is the id', handle, body: { code: 'success', message: '', data: handle } },
      { name: 'wrapped list', handle, body: { code: 200, data: [{ status: 'submitted', task_id: handle }] } },
      {
        name: 'wrapped',
        handle: '789654321',
        body: { code: 0, request_id: 'r-1', data: { task_id: '789654321', task_status: 'submitted' } },
      },
      {
        name: 'next to an output',
        handle,
        otherIds: ['r-1'],
        body: { output: { task_id: handle, task_status: 'PENDING' }, request_id: 'r-1' },
      },
      { name: 'next to a good base_resp', handle, body: { task_id: handle, base_resp: { status_code: 0 } } },
      { name: 'with an error', handle, body: { id: handle, error: { code: 'late', message: 'is slow' } } },
    ],
    rejected: [
      { name: 'no key', status: 401, body: envelope('Invalid token (request id: 1)') },
      { name: 'no balance', status: 403, body: envelope('用户额度不足', 'insufficient_user_quota') },
      { name: 'no model', status: 503, body: noChannel },
      { name: 'bad value', status: 400, body: answer('invalid_duration') },
      { name: 'balance with 200', body: { base_resp: { status_code: 1008, status_msg: 'balance' } } },
      { name: 'redirected', status: 307, headers: { location: 'https://other.example/' }, text: '' },
    ],
    unavailable: [
      { name: 'rate limit', status: 429, body: envelope('您已达到请求数限制：1分钟内最多请求10次') },
      { name: 'empty 429', status: 429, text: '' },
      { name: 'overloaded', status: 503, body: envelope('The upstream is overloaded') },
    ],
    unknown: [
      { name: 'server error', status: 500, body: answer('do_request_failed', '请求上游地址失败') },
      { name: 'a proxy away', status: 503, text: '<html>503</html>' },
      { name: 'empty', text: '' },
      { name: 'no members', body: {} },
      { name: 'null', body: null },
      { name: 'no id', body: answer('success', '') },
      { name: 'HTML', text: '<!doctype html><title>console</title>' },
      { name: 'an error of no known kind', body: answer('do_request_failed', 'eof') },
    ],
  },
  query: {
    queued: [
      { name: 'wrapped', body: wrapped('NOT_START', { progress: '0%', fail_reason: '', data: null }) },
      { name: 'unknown right after submission', body: { id: handle, status: 'unknown', progress: 0 } },
    ],
    running: [
      {
        name: 'wrapped',
        body: wrapped('IN_PROGRESS', { progress: '37%', data: { task_status: 'succeed' } }),
      },
      { name: 'flat', body: { task_id: handle, status: 'processing', url: '', error: { code: 0 } } },
      {
        name: 'in an envelope with a word of its own',
        body: { status: 'success', message: 'ok', data: { task_id: handle, status: 'processing' } },
      },
      { name: 'numbers that are no words', body: { status: 10000, data: { status: 'generating' } } },
    ],
    succeeded: [
      {
        name: 'wrapped',
        body: wrapped('SUCCESS', { fail_reason: '', result_url: video, data: { video: 1 } }),
      },
      {
        name: 'without a URL',
        body: { fail_reason: '', progress: '100%', status: 'SUCCESS', task_id: handle },
      },
      {
        name: 'flat',
        body: {
          task_id: handle,
          status: 'completed',
          url: video,
          metadata: { duration: 5, fps: 24 },
          error: { code: 0, message: '' },
        },
      },
    ],
    failed: [
      {
        name: 'wrapped',
        body: wrapped('FAILURE', { fail_reason: 'says no', result_url: 'says no', data: null }),
      },
      { name: 'flat', body: { id: handle, status: 'failed', error: { message: 'blocked', code: '1026' } } },
      {
        name: 'done with a bad code',
        body: { code: 50411, message: 'Pre Img Risk Not Pass', data: { status: 'done', video_url: '' } },
      },
    ],
    missing: [400, 404, 200].map((status) => ({ name: `${status}`, status, body: answer('task_not_exist') })),
    unauthorized: [{ name: '401', status: 401, body: envelope('Invalid token') }],
    again: [
      { name: 'no news', body: answer('success', '') },
      { name: 'rate limit', status: 429, text: '' },
      { name: 'bad gateway', status: 502, text: '<html></html>' },
      { name: 'no model', status: 503, body: noChannel },
      { name: 'HTML', text: '<!doctype html>' },
      { name: 'no state', body: { task_id: handle } },
    ],
  },
});
