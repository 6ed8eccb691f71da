import type { Json } from '../../../src/json.ts';
import { a } from '../../../src/protocols/a/protocol.ts';
import { conformance } from '../conformance.ts';
import { finished, goodBody, images, name, spooled } from './support.ts';

const rpcError = (code: number, message: string, status: string): Json => ({
  error: { code, message, status },
});
const envelope = (message: string, code = ''): Json => ({ error: { message, type: 'new_api_error', code } });
const uri = 'https://files.example/v1beta/files/1:download?alt=media';
const filtered = { raiMediaFilteredCount: 1, raiMediaFilteredReasons: ['58061214'] };

await conformance(a, {
  body: goodBody,
  sent: { instances: goodBody.instances, parameters: goodBody.parameters },
  handle: name,
  flags: {
    model: 'video-a',
    prompt: 'a cat',
    image: images['image/png'] ?? '',
    duration: '8',
    resolution: '720p',
    'aspect-ratio': '16:9',
    audio: true,
    'negative-prompt': 'dogs',
    'sample-count': '2',
    'person-generation': 'allow_adult',
    seed: '7',
    'enhance-prompt': false,
  },
  submission: {
    accepted: [
      { name: 'done absent', handle: name, body: { name } },
      { name: 'done false', handle: name, body: { name, done: false } },
      { name: 'with metadata', handle: name, body: { name, metadata: { '@type': 'type.example/t' } } },
      {
        name: 'with an error',
        handle: name,
        body: { name, error: { code: 13, message: 'Internal error.' } },
      },
    ],
    rejected: [
      { name: 'invalid', status: 400, body: rpcError(400, 'Unsupported duration', 'INVALID_ARGUMENT') },
      { name: 'in a list', status: 403, body: [rpcError(403, 'Denied', 'PERMISSION_DENIED')] },
      { name: 'no such model', status: 404, body: rpcError(404, 'models/x is not found', 'NOT_FOUND') },
      { name: 'key', status: 401, body: envelope('Invalid token (request id: r-1)') },
      { name: 'balance', status: 403, body: envelope('user quota is not enough', 'insufficient_user_quota') },
      {
        name: 'no channel',
        status: 503,
        body: envelope('No available channel for model x', 'model_not_found'),
      },
    ],
    unavailable: [
      { name: 'quota', status: 429, body: rpcError(429, 'Too many requests', 'RESOURCE_EXHAUSTED') },
      { name: 'overloaded', status: 503, body: rpcError(503, 'The model is overloaded.', 'UNAVAILABLE') },
    ],
    unknown: [
      { name: 'internal', status: 500, body: rpcError(500, 'Internal error.', 'INTERNAL') },
      { name: 'a gateway between', status: 502, text: '<html>Bad Gateway</html>' },
      { name: 'an error with 200', body: rpcError(3, 'Bad prompt', 'INVALID_ARGUMENT') },
      { name: 'empty', text: '' },
      { name: 'an object as the name', body: { name: {} } },
    ],
  },
  query: {
    queued: [],
    running: [
      { name: 'done absent', body: { name } },
      { name: 'done false', body: { name, done: false } },
      { name: 'with metadata', body: { name, metadata: { '@type': 'type.example/t' } } },
    ],
    succeeded: [
      { name: 'an address', body: finished([{ video: { uri, encoding: 'video/mp4' } }]) },
      {
        name: 'inline',
        body: finished([{ video: { encodedVideo: 'mgw-spool:0', encoding: 'video/mp4' } }]),
        spooled: spooled(1),
      },
      { name: 'two', body: finished([{ video: { uri } }, { video: { uri: `${uri}&n=2` } }]) },
      { name: 'partly filtered', body: finished([{ video: { uri } }], filtered) },
      {
        name: 'an empty error',
        body: { ...finished([{ video: { uri } }]), error: { code: 0, message: '' } },
      },
      { name: 'videos', body: { name, done: true, response: { videos: [{ uri, mimeType: 'video/mp4' }] } } },
    ],
    failed: [
      { name: 'internal', body: { name, done: true, error: { code: 13, message: 'Internal error.' } } },
      {
        name: 'policy',
        body: { name, done: true, error: { code: 3, message: 'Violates the content policy' } },
      },
      { name: 'filtered', body: finished([], filtered) },
      { name: 'no samples', body: finished([]) },
    ],
    missing: [
      { name: 'not found', status: 404, body: rpcError(404, 'Operation not found', 'NOT_FOUND') },
      { name: 'with 200', body: rpcError(404, 'Operation not found', 'NOT_FOUND') },
    ],
    unauthorized: [
      { name: 'key', status: 401, body: envelope('Invalid token') },
      { name: 'another key', status: 403, body: rpcError(403, 'Another key', 'PERMISSION_DENIED') },
    ],
    again: [
      { name: 'rate', status: 429, text: '' },
      { name: 'server', status: 500, body: rpcError(500, 'Internal error.', 'INTERNAL') },
      { name: 'HTML', text: '<html></html>' },
      { name: 'redirect', status: 302, text: '' },
      { name: 'nothing in it', body: {} },
      { name: 'null', body: null },
      { name: 'a number', body: 1 },
    ],
  },
});
