import { declaresJson, jsonObject } from '../body.ts';
import {
  actionError,
  taskNotFound,
  type Call,
  type Reply,
  type Route,
  json,
  gatewayError,
  unknownPath,
  type Gateway,
} from '../exchange.ts';
import { recordPoll, recordSent, note } from '../journal.ts';
import { orderB } from '../orders/b.ts';
import { type Progress, type Task, acceptOrder, findTask, progressOf } from '../tasks.ts';
import { createHmac } from 'node:crypto';
import { carriesKey } from '../auth.ts';
import { serveVideo } from '../files.ts';

const createAction = 'CreateAigcVideoTask';
const describeAction = 'DescribeTaskDetail';
const apiVersion = '2018-07-17';

/**
 * How long a task can be queried: three days. After that, the gateway can no longer map the id to a task (specification
 * 3.2).
 */
const taskLifeMs = 3 * 24 * 3600 * 1000;

/** The routes of Protocol B: one path for both operations (specification 4.2). */
export const protocolB: readonly Route[] = [
  { method: 'POST', pattern: /^\/$/, area: 'b', kind: kindOf, auth: 'bearer', handle: handleAction },
];

function kindOf({ headers }: Call): 'submit' | 'poll' {
  return headers['x-tc-action'] === createAction ? 'submit' : 'poll';
}

function handleAction(call: Call): Reply {
  const { headers, requestId, query } = call;
  const refuse = (code: string, message: string): Reply => actionError(code, message, requestId);
  const { 'x-tc-action': action, 'x-tc-version': version } = headers;
  if (action === undefined) return refuse('MissingParameter', 'The header X-TC-Action is missing.');
  if (version === undefined) return refuse('MissingParameter', 'The header X-TC-Version is missing.');
  if (action !== createAction && action !== describeAction)
    return refuse('InvalidAction', 'The action does not exist.');
  if (version !== apiVersion) return refuse('NoSuchVersion', `X-TC-Version must be ${apiVersion}.`);
  if (query.size > 0) return refuse('InvalidRequest', 'The URL must not have a query.');
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined)
    return refuse('InvalidRequest', 'The body must be a JSON object with the content type application/json.');
  return action === createAction ? create(call, body) : describe(call, body);
}

function create(call: Call, body: Record<string, unknown>): Reply {
  const task = acceptOrder(call, 'b', orderB(call, body));
  return recordSent(call, task.id, json(200, { Response: { TaskId: task.id, RequestId: call.requestId } }));
}

function describe(call: Call, { TaskId: id, ...others }: Record<string, unknown>): Reply {
  const { gateway, requestId } = call;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) {
    return actionError('UnknownParameter', `The parameter \`${unknown}\` is not recognized.`, requestId);
  }
  if (typeof id !== 'string' || id === '')
    return actionError('MissingParameter', 'TaskId is missing.', requestId);
  const task = findTask(gateway.stateDir, 'b', id);
  const now = gateway.now();
  if (task?.key !== call.key || now > task.createdAt + taskLifeMs) return taskNotFound('b', requestId);
  const progress = progressOf(task, now);
  const reply = json(200, { Response: { ...detailOf(call, task, progress), RequestId: requestId } });
  return recordPoll(call, id, progress, reply);
}

const statusByState = {
  queued: 'WAITING',
  running: 'PROCESSING',
  succeeded: 'FINISH',
  failed: 'FINISH',
} as const;

function detailOf(call: Call, task: Task, progress: Progress): object {
  const { state, startedAt, finishedAt, percent } = progress;
  return {
    TaskType: 'AigcVideoTask',
    Status: statusByState[state],
    CreateTime: isoTime(task.createdAt),
    BeginProcessTime: startedAt === undefined ? '' : isoTime(startedAt),
    FinishTime: finishedAt === undefined ? '' : isoTime(finishedAt),
    AigcVideoTask: {
      TaskId: task.id,
      Status: statusByState[state],
      Progress: percent,
      ...errorOf(task, state),
      Output: state === 'succeeded' ? outputOf(call, task) : null,
      SessionId: '',
      SessionContext: '',
    },
    // The upstream also includes its other task types, each as null.
    ProcedureTask: null,
    AigcImageTask: null,
  };
}

function errorOf({ outcome }: Task, state: Progress['state']): object {
  if (state !== 'failed' || outcome.end !== 'fails') return { ErrCode: 0, ErrCodeExt: '', Message: '' };
  return { ...errorsByReason[outcome.reason], Message: outcome.message };
}

const errorsByReason = {
  failed: { ErrCode: 70000, ErrCodeExt: '' },
  'failed-ext': { ErrCode: 0, ErrCodeExt: 'ModelGenerateFailed' },
  filtered: { ErrCode: 40000, ErrCodeExt: 'InvalidParameter.VoilationContent' },
  rejected: { ErrCode: 40000, ErrCodeExt: 'InvalidParameterValue' },
  'unreachable-asset': { ErrCode: 60000, ErrCodeExt: '' },
} as const;

function outputOf(call: Call, task: Task): object {
  const { url, expiresAt } = signedUrl(call.gateway, task);
  const file = {
    StorageMode: 'Temporary',
    MediaName: '',
    ClassId: 0,
    ExpireTime: isoTime(expiresAt),
    FileType: 'mp4',
  };
  const seconds = { InputSeconds: 0, OutputSeconds: task.seconds, TotalSeconds: task.seconds };
  return {
    FileInfos: [
      { ...file, FileUrl: url, MetaData: { Duration: task.seconds, Width: task.width, Height: task.height } },
    ],
    ...(task.returnUsage && { Usage: { InputTokens: 0, InputImageCount: 0, ...seconds } }),
  };
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

/** The validity of a signed URL, in milliseconds. The specification does not define it. */
const urlLifeMs = 24 * 3600 * 1000;

/**
 * The routes of the host for Protocol B's result files, a separate origin. The host accepts only signed URLs, and must
 * never receive a key (specification 4.2). A request with a key is refused with HTTP 400 and recorded as a finding.
 */
export const fileHost: readonly Route[] = [
  { method: 'GET', pattern: /^\/(.+)\.mp4$/, area: 'b', kind: 'download', auth: 'none', handle: serve },
];

/** Returns a new signed URL for a finished task's file, and its expiry time in milliseconds since 1970. */
function signedUrl(gateway: Gateway, task: Task): { url: string; expiresAt: number } {
  const expiresAt = gateway.now() + urlLifeMs;
  const url = `${gateway.fileUrl}/${task.id}.mp4?t=${expiresAt}&sign=${sign(task, String(expiresAt))}`;
  return { url, expiresAt };
}

function serve(call: Call, id: string): Reply {
  const { gateway, query, path } = call;
  const { stateDir, now } = gateway;
  if (carriesKey(stateDir, call.headers, query.toString())) {
    note(stateDir, { kind: 'key-at-file-host', at: now(), path });
    return gatewayError(400, 'A key was sent to the file host.', { code: 'key_at_file_host' });
  }
  const task = findTask(stateDir, 'b', id);
  const finishedAt = task && progressOf(task, now()).finishedAt;
  if (task === undefined || finishedAt === undefined) return unknownPath('GET', path);
  const expiry = query.get('t') ?? '';
  if (query.get('sign') !== sign(task, expiry)) return gatewayError(403, 'The signature does not match.');
  if (now() > Number(expiry)) return gatewayError(403, 'The address has expired.');
  return serveVideo(call, task, finishedAt);
}

/**
 * Returns a URL's signature. The secret consists of fields in the task's file, which all processes share and only
 * this user can read.
 */
function sign({ id, key, createdAt }: Task, expiry: string): string {
  return createHmac('sha256', `${key} ${createdAt}`).update(`${id} ${expiry}`).digest('hex');
}
