import { b } from '../../../src/protocols/b/protocol.ts';
import { conformance } from '../conformance.ts';
import { finished, goodBody } from './support.ts';

const handle = '1256768367-AigcVideo-12345678901234567890';
const error = (code: string, message = 'words') => ({
  Response: { Error: { Code: code, Message: message }, RequestId: 'r-1' },
});
const envelope = (message: string, code = '') => ({ error: { message, type: 'new_api_error', code } });
const task = (status: string, members: object = {}, outer = status) => ({
  Response: {
    TaskType: 'AigcVideoTask',
    Status: outer,
    CreateTime: '2026-11-20T10:00:00Z',
    AigcVideoTask: { TaskId: handle, Status: status, ErrCode: 0, ErrCodeExt: '', Message: '', ...members },
    WechatMiniProgramPublishTask: null,
    RequestId: 'r-2',
  },
});
const noFiles = { Output: { FileInfos: [] } };

await conformance(b, {
  body: {
    ...goodBody,
    FileInfos: [{ Type: 'Url', Url: 'https://p.example/1.png', Category: 'Image', Usage: 'FirstFrame' }],
    ExtInfo: '{"ExtVideoParameters":"{\\"ReturnUsage\\":true}"}',
  },
  handle,
  flags: {
    model: 'Video-B',
    'model-version': '1.0',
    prompt: 'a cat',
    'negative-prompt': 'a dog',
    'first-frame': 'https://p.example/f.png',
    reference: ['https://p.example/1.png', 'https://p.example/2.png'],
    duration: '5',
    resolution: '720P',
    'aspect-ratio': '16:9',
    audio: false,
    'storage-mode': 'Temporary',
    'ext-info': '{"a":1}',
    'return-usage': true,
  },
  submission: {
    accepted: [
      { name: 'as specified', handle, body: { Response: { TaskId: handle, RequestId: 'r-1' } } },
      {
        name: 'next to an error',
        handle,
        body: { Response: { TaskId: handle, ...error('InternalError').Response } },
      },
      {
        name: 'a long number',
        handle: '12345678901234567890',
        text: '{"Response":{"TaskId":12345678901234567890}}',
      },
    ],
    rejected: [
      { name: 'a parameter', body: error('InvalidParameterValue') },
      { name: 'content', body: error('InvalidParameter.VoilationContent') },
      { name: 'the key', body: error('AuthFailure.SignatureFailure') },
      { name: 'the key, before the relay', status: 401, body: envelope('Invalid token') },
      { name: 'balance', status: 403, body: envelope('用户额度不足', 'insufficient_user_quota') },
      {
        name: 'no such model',
        status: 503,
        body: envelope('No available channel for model x', 'model_not_found'),
      },
      { name: 'a wrong path', status: 404, body: envelope('Invalid URL (POST /)') },
    ],
    unavailable: [
      { name: 'rate limit with 200', body: error('RequestLimitExceeded.UinLimitExceeded') },
      { name: 'empty 429', status: 429, text: '' },
      { name: '503', status: 503, body: envelope('overloaded') },
    ],
    unknown: [
      { name: 'internal error', body: error('InternalError') },
      { name: 'failed operation', body: error('FailedOperation') },
      { name: 'an unknown code', body: error('Novel') },
      { name: 'no task id', body: { Response: { RequestId: 'r-1' } } },
      { name: 'nothing', text: '' },
      { name: 'HTML', text: '<html></html>' },
      { name: '502', status: 502, text: '<html></html>' },
    ],
  },
  query: {
    queued: [
      { name: 'waiting', body: task('WAITING') },
      {
        name: 'no inner task yet',
        body: { Response: { Status: 'WAITING', AigcVideoTask: null, RequestId: 'r' } },
      },
    ],
    running: [
      { name: 'processing', body: task('PROCESSING', { Progress: 30, Output: null }) },
      { name: 'outer FINISH, inner PROCESSING', body: task('PROCESSING', noFiles, 'FINISH') },
      { name: 'an unknown word', body: task('POLISHING') },
    ],
    succeeded: [
      { name: 'as specified', body: finished() },
      { name: 'no ErrCodeExt', body: finished({ ErrCodeExt: undefined }) },
      {
        name: 'two files',
        body: finished({ Output: { FileInfos: [1, 2].map((n) => ({ FileUrl: `https://f.example/${n}` })) } }),
      },
    ],
    failed: [
      { name: 'ErrCode', body: task('FINISH', { ErrCode: 70000, Message: 'why', ...noFiles }) },
      { name: 'ErrCodeExt', body: task('FINISH', { ErrCodeExt: 'ContentModerationFailed' }) },
      { name: 'ErrCodeExt "0"', body: task('FINISH', { ErrCodeExt: '0', ...noFiles }) },
      { name: 'aborted', body: task('ABORTED') },
    ],
    missing: [
      { name: 'not found', body: error('ResourceNotFound') },
      { name: 'wrong id', body: error('InvalidParameterValue', 'invalid TaskId') },
    ],
    unauthorized: [
      { name: 'with 200', body: error('UnauthorizedOperation') },
      { name: '401', status: 401, body: envelope('Invalid token') },
    ],
    again: [
      { name: 'rate limit', body: error('RequestLimitExceeded') },
      { name: 'internal error', body: error('InternalError') },
      {
        name: 'error next to a task',
        body: { Response: { ...task('FINISH').Response, ...error('InternalError').Response } },
      },
      { name: '502', status: 502, text: '<html></html>' },
      { name: 'empty 429', status: 429, text: '' },
      { name: 'HTML', text: '<html></html>' },
      { name: 'no status', body: { Response: { RequestId: 'r' } } },
    ],
  },
});
