import type { ProtocolName } from '../../src/protocols/registry.ts';

/** A protocol of the tests' gateway, or speech. */
export type Area = ProtocolName | 'tts';

/** The kind of request that a job sends. */
export type Step = 'submit' | 'query' | 'content' | 'other';

/** A request that the gateway received. */
export interface Seen {
  step: Step;
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
  /** The time at which the request head arrived, in ms since 1970. */
  at: number;
}

/**
 * One protocol's wire format, implemented from the specification independently of mgw, so that the tests do
 * not repeat mgw's mistakes.
 */
export interface Dialect {
  /** The command line of a submission. */
  command: string[];
  /** The command line of a submission with another prompt. */
  other: string[];
  /** Flags that make the submission poll as fast as loopback allows. */
  fast: string[];
  extension: string;
  stepOf: (seen: Pick<Seen, 'method' | 'path' | 'headers'>) => Step;
  handle: (number: number) => string;
  /** Returns the handle in a query. */
  queriedHandle: (seen: Pick<Seen, 'path' | 'body'>) => string;
  accepted: (handle: string) => object;
  running: (handle: string) => object;
  succeeded: (handle: string, url: string) => object;
  failed: (handle: string) => object;
  missing: { status: number; body: object };
}

type CommandLine = Pick<Dialect, 'command' | 'other' | 'fast' | 'extension'>;

/** Flags that make a command poll as fast as loopback allows. */
export const fast = ['--poll-interval', '20ms'];

const submit = (protocol: ProtocolName, ...model: string[]): CommandLine => {
  const command = ['video', protocol, 'submit', '--model', ...model, '--prompt'];
  const [one, other] = [
    [...command, 'a paper boat'],
    [...command, 'a paper plane'],
  ];
  return { command: one, other, fast, extension: 'mp4' };
};

const failure = 'the picture could not be made';

/** Returns the `response` member of a finished Protocol A operation (specification 2.2). */
export function generated(videos: object[], more: object = {}): object {
  const generatedSamples = videos.map((video) => ({ video }));
  return { response: { generateVideoResponse: { generatedSamples, ...more } } };
}

const a: Dialect = {
  ...submit('a', 'video-a'),
  stepOf: ({ method, path }) => {
    if (method === 'POST') return path.endsWith(':predictLongRunning') ? 'submit' : 'other';
    if (/^\/v1beta\/models\/[^/]+\/operations\//.test(path)) return 'query';
    return path.startsWith('/files/') ? 'content' : 'other';
  },
  handle: (number) => `models/video-a/operations/op-${String(number).padStart(4, '0')}`,
  queriedHandle: ({ path }) => decodeURIComponent(path.slice('/v1beta/'.length)),
  accepted: (name) => ({ name, done: false }),
  running: (name) => ({ name, done: false }),
  succeeded: (name, uri) => ({ name, done: true, ...generated([{ uri }]) }),
  failed: (name) => ({ name, done: true, error: { code: 13, message: failure } }),
  missing: {
    status: 404,
    body: { error: { code: 404, message: 'Operation not found', status: 'NOT_FOUND' } },
  },
};

/**
 * Returns a Protocol B response that describes a task. `Status` is the outer and the inner status; `rest` contains the
 * inner task's other members.
 */
export const detail = (TaskId: string, Status: string, rest: object): object => ({
  Response: {
    TaskType: 'AigcVideoTask',
    Status,
    AigcVideoTask: { TaskId, Status, ErrCode: 0, ErrCodeExt: '', Message: '', ...rest },
    RequestId: 'request-1',
  },
});

const b: Dialect = {
  ...submit('b', 'Video-B', '--model-version', '2.0'),
  stepOf: ({ method, path, headers }) => {
    if (method !== 'POST' || path !== '/') return path.startsWith('/files/') ? 'content' : 'other';
    const action = headers['x-tc-action'];
    if (action === 'CreateAigcVideoTask') return 'submit';
    return action === 'DescribeTaskDetail' ? 'query' : 'other';
  },
  // The handle has too many digits for a JavaScript number.
  handle: (number) => `12000000000000000${String(number).padStart(3, '0')}`,
  queriedHandle: ({ body }) => (JSON.parse(body) as { TaskId: string }).TaskId,
  accepted: (TaskId) => ({ Response: { TaskId, RequestId: 'request-1' } }),
  running: (handle) => detail(handle, 'PROCESSING', {}),
  succeeded: (handle, FileUrl) =>
    detail(handle, 'FINISH', { Output: { FileInfos: [{ FileUrl, MetaData: { Duration: 5 } }] } }),
  failed: (handle) => detail(handle, 'FINISH', { ErrCode: 7, Message: failure }),
  missing: {
    status: 200,
    body: { Response: { Error: { Code: 'ResourceNotFound', Message: 'no such task' }, RequestId: 'r' } },
  },
};

const c: Dialect = {
  ...submit('c', 'vendor-h3-mini'),
  stepOf: ({ method, path }) => {
    if (method === 'POST') return /^\/v1\/(videos|video\/generations)$/.test(path) ? 'submit' : 'other';
    if (/^\/v1\/videos\/[^/]+\/content(\?|$)/.test(path)) return 'content';
    return /^\/v1\/(videos|video\/generations)\/[^/]+$/.test(path) ? 'query' : 'other';
  },
  handle: (number) => `task_${String(number).padStart(4, '0')}`,
  queriedHandle: ({ path }) => decodeURIComponent(path.split('/').pop() ?? ''),
  accepted: (task_id) => ({ id: task_id, task_id, object: 'video', status: 'queued', progress: 0 }),
  running: (task_id) => ({ task_id, status: 'in_progress' }),
  succeeded: (task_id) => ({ task_id, status: 'completed' }),
  failed: (task_id) => ({ task_id, status: 'failed', error: { code: '1000', message: failure } }),
  missing: {
    status: 404,
    body: { error: { code: 'task_not_exist', message: 'task not exist', type: 'invalid_request_error' } },
  },
};

// A speech call has no handle except the service's log id, and cannot be queried afterwards.
const none = (): never => {
  throw new Error('a speech task cannot be queried');
};

const tts: Dialect = {
  command: ['tts', 'A paper boat.'],
  other: ['tts', 'A paper plane.'],
  fast: [],
  extension: 'mp3',
  stepOf: ({ method, path }) =>
    method === 'POST' && path === '/api/v3/tts/unidirectional' ? 'submit' : 'other',
  handle: (number) => `log-${String(number).padStart(4, '0')}`,
  queriedHandle: none,
  accepted: none,
  running: none,
  succeeded: none,
  failed: none,
  missing: { status: 404, body: {} },
};

/** The wire formats of the three protocols and of speech. */
export const dialects: Record<Area, Dialect> = { a, b, c, tts };
