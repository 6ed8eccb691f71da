import type { ServerResponse } from 'node:http';
import { fakeMp4 } from '../support/film.ts';
import { json, listen, type Origin, type Seen } from '../support/origin.ts';
import { end, speechBody } from '../speech/frames.ts';

/** A gateway's response to one submission, instead of an acceptance. */
export type Deed =
  /** Responds with 429, and `Retry-After` in seconds. */
  | { kind: 'limit'; seconds?: number }
  /** Accepts the task, but closes the connection before the response. */
  | { kind: 'lose' }
  /** Accepts the task, but responds with 500. */
  | { kind: 'fail-after' }
  /** Accepts a task that will fail. */
  | { kind: 'doom' }
  /** Responds with 400. */
  | { kind: 'refuse' }
  /** Responds with 403 and a message. */
  | { kind: 'forbid'; message: string }
  /** Accepts the task, and responds later. */
  | { kind: 'wait'; until: Promise<void> };

interface Task {
  prompt: string;
  polls: number;
  /** Whether any response has reported the task. */
  isKnown: boolean;
  isDoomed: boolean;
}

/** A gateway that speaks Protocols A, B and C and speech according to the specification, and counts all charges. */
export interface BatchGateway extends Origin {
  /** How often each prompt or text was charged. */
  charges: Map<string, number>;
  /** Returns how to respond to a submission, or undefined to accept the submission. */
  judge: (prompt: string, seen: Seen) => Deed | undefined;
  /** Returns the id of the given prompt's latest task. */
  taskOf: (prompt: string) => string;
  /** The number of polls after which a task is finished. */
  polls: number;
  /** Called with each request before the response is sent. */
  before: (seen: Seen) => Promise<void> | void;
  /** Returns the number of unfinished tasks that a client knows about. */
  underWay: () => number;
  /** The number of videos in a Protocol A task. */
  samples: number;
  /** Tasks whose files no longer exist. */
  gone: Set<string>;
  /** Whether the gateway responds to each query with 404, because its tasks have expired. */
  isExpired: boolean;
  /** Returns all submissions. */
  posts(): Seen[];
  /** Returns all requests for the model list. */
  listings(): Seen[];
  video: Buffer;
  /** Returns the video of the given task. */
  videoOf: (prompt: string, id: string) => Uint8Array;
  audio: Buffer;
}

const submitC = new Set(['/v1/video/generations', '/v1/videos']);

/** Starts the gateway on loopback. */
export async function startBatchGateway(): Promise<BatchGateway> {
  const tasks = new Map<string, Task>();
  const made = new Map<string, string>();
  const charge = (prompt: string): void =>
    void gateway.charges.set(prompt, (gateway.charges.get(prompt) ?? 0) + 1);
  const submit = (
    seen: Seen,
    response: ServerResponse,
    prompt: string,
    accept: (id: string) => void,
  ): void => {
    const deed = gateway.judge(prompt, seen);
    if (deed?.kind === 'limit') {
      if (deed.seconds !== undefined) response.setHeader('retry-after', String(deed.seconds));
      json(response, { error: { code: 'rate_limit', message: 'too many requests' } }, 429);
      return;
    }
    if (deed?.kind === 'refuse') {
      json(response, { error: { code: 'invalid_request', message: 'no such thing' } }, 400);
      return;
    }
    if (deed?.kind === 'forbid') {
      json(response, { error: { message: deed.message } }, 403);
      return;
    }
    charge(prompt);
    const id = `task-${tasks.size + 1}`;
    made.set(prompt, id);
    const isKnown = deed?.kind !== 'lose' && deed?.kind !== 'fail-after';
    tasks.set(id, { prompt, polls: 0, isKnown, isDoomed: deed?.kind === 'doom' });
    if (deed?.kind === 'lose') response.destroy();
    else if (deed?.kind === 'wait') void deed.until.then(() => accept(id));
    else if (deed?.kind === 'fail-after') json(response, { error: { message: 'upstream broke' } }, 500);
    else accept(id);
  };
  const handle = (seen: Seen, response: ServerResponse): void => {
    const { method, path } = seen;
    if (path === '/v1/models') {
      json(response, { data: [{ id: 'Kling', model_versions: ['2.0'] }] });
      return;
    }
    if (path.startsWith('/file/') || path.endsWith('/content')) {
      const id = path.split('/').find((part) => part.startsWith('task-')) ?? '';
      if (gateway.gone.has(id)) json(response, { error: { message: 'it is gone' } }, 410);
      else file(response, gateway.videoOf(tasks.get(id)?.prompt ?? '', id));
      return;
    }
    const [, model] = /^\/v1beta\/models\/([^/:]+):predictLongRunning$/.exec(path) ?? [];
    if (method === 'POST' && model !== undefined) {
      const prompt = (JSON.parse(seen.body) as { instances: [{ prompt: string }] }).instances[0].prompt;
      submit(seen, response, prompt, (id) =>
        json(response, { name: `models/${model}/operations/${id}`, done: false }),
      );
      return;
    }
    if (method === 'POST' && path === '/') {
      protocolB(seen, response);
      return;
    }
    if (method === 'POST' && submitC.has(path)) {
      const { prompt } = JSON.parse(seen.body) as { prompt: string };
      submit(seen, response, prompt, (id) => json(response, { task_id: id, status: 'queued' }));
      return;
    }
    if (method === 'POST' && path === '/api/v3/tts/unidirectional') {
      const { text } = (JSON.parse(seen.body) as { req_params: { text: string } }).req_params;
      submit(seen, response, text, () => response.end(speechBody([gateway.audio, end])));
      return;
    }
    query(path, response);
  };
  const protocolB = (seen: Seen, response: ServerResponse): void => {
    const body = JSON.parse(seen.body) as { Prompt: string; TaskId: string };
    if (seen.headers['x-tc-action'] === 'CreateAigcVideoTask') {
      submit(seen, response, body.Prompt, (TaskId) =>
        json(response, { Response: { TaskId, RequestId: 'r' } }),
      );
      return;
    }
    const { isDone, isDoomed } = look(body.TaskId);
    const Status = isDone ? 'FINISH' : 'PROCESSING';
    const FileInfos = [{ FileUrl: `${gateway.url}/file/${body.TaskId}` }];
    const verdict = isDoomed
      ? { ErrCode: 70000, ErrCodeExt: 'ModelGenerateFailed', Message: 'it went wrong' }
      : { ErrCode: 0, ErrCodeExt: '', Output: { FileInfos } };
    const AigcVideoTask = { TaskId: body.TaskId, Status, ...(isDone ? verdict : {}) };
    json(response, { Response: { TaskType: 'AigcVideoTask', Status, AigcVideoTask, RequestId: 'r' } });
  };
  const query = (path: string, response: ServerResponse): void => {
    const id = path.split('/').pop() ?? '';
    if (gateway.isExpired) {
      json(response, { code: 'task_not_exist', message: 'task_not_exist' }, 404);
      return;
    }
    const { isDone, isDoomed } = look(id);
    if (path.startsWith('/v1beta/')) {
      const name = path.slice('/v1beta/'.length);
      const sample = { video: { uri: `${gateway.url}/file/${id}` } };
      const samples = { generatedSamples: Array.from({ length: gateway.samples }, () => sample) };
      const good = { response: { generateVideoResponse: samples } };
      const bad = { error: { code: 13, message: 'it went wrong' } };
      json(response, { name, done: isDone, ...(isDone ? (isDoomed ? bad : good) : {}) });
      return;
    }
    const ended = isDoomed
      ? { status: 'failed', error: { message: 'it went wrong' } }
      : { status: 'completed' };
    json(response, { task_id: id, ...(isDone ? ended : { status: 'in_progress' }) });
  };
  const look = (id: string): { isDone: boolean; isDoomed: boolean } => {
    const task = tasks.get(id);
    if (task === undefined) return { isDone: false, isDoomed: false };
    task.polls += 1;
    return { isDone: task.polls > gateway.polls, isDoomed: task.isDoomed };
  };
  const origin = await listen(async (seen, response) => {
    await gateway.before(seen);
    handle(seen, response);
  });
  const gateway: BatchGateway = {
    ...origin,
    charges: new Map(),
    judge: () => undefined,
    taskOf: (prompt) => made.get(prompt) ?? '',
    polls: 1,
    before: () => undefined,
    underWay: () => [...tasks.values()].filter((task) => task.isKnown && task.polls <= gateway.polls).length,
    samples: 1,
    gone: new Set(),
    isExpired: false,
    posts: () =>
      gateway.requests.filter(
        ({ method, headers }) => method === 'POST' && headers['x-tc-action'] !== 'DescribeTaskDetail',
      ),
    listings: () => gateway.requests.filter(({ path }) => path === '/v1/models'),
    video: fakeMp4(5000),
    videoOf: () => gateway.video,
    audio: Buffer.alloc(3000, 'a'),
  };
  return gateway;
}

function file(response: ServerResponse, bytes: Uint8Array): void {
  response.writeHead(200, { 'content-type': 'video/mp4', 'content-length': bytes.length });
  response.end(bytes);
}
