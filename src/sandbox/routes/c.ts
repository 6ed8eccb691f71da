import { declaresJson, jsonObject } from '../body.ts';
import {
  gatewayError,
  modelNotFound,
  taskError,
  taskNotFound,
  type Call,
  type Reply,
  type Route,
  json,
  RefusedCall,
} from '../exchange.ts';
import { serveVideo } from '../files.ts';
import { recordPoll, recordSent } from '../journal.ts';
import { findModel } from '../models.ts';
import { orderC } from '../orders/c.ts';
import { type Progress, type Task, acceptOrder, findTask, progressOf } from '../tasks.ts';

const common = { area: 'c', auth: 'bearer' } as const;

/** The routes of Protocol C (specification 4.3), and the paths below `/v1/videos` that real gateways also support. */
export const protocolC: readonly Route[] = [
  { ...common, method: 'POST', pattern: /^\/v1\/video\/generations$/, kind: 'submit', handle: submit },
  { ...common, method: 'POST', pattern: /^\/v1\/videos$/, kind: 'submit', handle: submit },
  {
    ...common,
    method: 'GET',
    pattern: /^\/v1\/video\/generations\/([^/]+)$/,
    kind: 'poll',
    handle: showTask,
  },
  { ...common, method: 'GET', pattern: /^\/v1\/videos\/([^/]+)$/, kind: 'poll', handle: showVideo },
  {
    ...common,
    method: 'GET',
    pattern: /^\/v1\/videos\/([^/]+)\/content$/,
    kind: 'download',
    handle: content,
  },
];

function submit(call: Call): Reply {
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined) return taskError(400, 'invalid_request', 'the body must be a JSON object');
  if (typeof body.model !== 'string' || body.model === '') {
    return gatewayError(400, 'Model name is not specified', {
      code: 'invalid_request',
      requestId: call.requestId,
    });
  }
  const model = findModel('c', body.model, call.mayUse);
  if (model === undefined) return modelNotFound(body.model, call.requestId);
  const order = orderC(call, model, body);
  const task = acceptOrder(call, 'c', order);
  const { id, createdAt } = task;
  const acceptedTask = { id, task_id: id, object: 'video', model: model.id, status: 'queued', progress: 0 };
  const ratios = { seconds: order.declaredSeconds, resolution: order.resolution === '2K' ? 2 : 1 };
  const responseBody = { ...acceptedTask, created_at: secondsOf(createdAt) };
  return recordSent(
    call,
    task.id,
    json(200, responseBody, { 'X-New-Api-Other-Ratios': JSON.stringify(ratios) }),
  );
}

function showTask(call: Call, id: string): Reply {
  const { task, progress } = findQueriedTask(call, id);
  const result = resultUrl(call, task, progress);
  const reason = failReason(task, progress);
  const reply = json(200, {
    code: 'success',
    message: '',
    data: {
      id: Number.parseInt(task.id.slice(-7), 16) + 1,
      created_at: secondsOf(task.createdAt),
      updated_at: secondsOf(call.gateway.now()),
      task_id: task.id,
      platform: '35',
      user_id: 1,
      group: 'default',
      channel_id: 1,
      quota: task.amount,
      action: 'generate',
      status: taskWords[progress.state],
      fail_reason: reason,
      // If there is no URL, real gateways put the failure reason here.
      result_url: result ?? reason,
      submit_time: secondsOf(task.createdAt),
      start_time: secondsOf(progress.startedAt ?? 0),
      finish_time: secondsOf(progress.finishedAt ?? 0),
      progress: `${progress.percent}%`,
      properties: { input: task.prompt, upstream_model_name: task.model },
      data: upstreamView(task, progress),
    },
  });
  return recordPoll(call, id, progress, reply);
}

function showVideo(call: Call, id: string): Reply {
  const { task, progress } = findQueriedTask(call, id);
  const { finishedAt } = progress;
  const reply = json(200, {
    id: task.id,
    task_id: task.id,
    object: 'video',
    model: task.model,
    status: videoWords[progress.state],
    progress: progress.percent,
    created_at: secondsOf(task.createdAt),
    ...(finishedAt !== undefined && { completed_at: secondsOf(finishedAt) }),
    seconds: String(task.seconds),
    size: `${task.width}x${task.height}`,
    ...(progress.state === 'failed' && {
      error: { code: failCode(task), message: failReason(task, progress) },
    }),
    metadata: { url: resultUrl(call, task, progress) ?? failReason(task, progress) },
  });
  return recordPoll(call, id, progress, reply);
}

function content(call: Call, id: string): Reply {
  const task = ownTask(call, id);
  const notFound = gatewayError(404, 'Task not found', { type: 'invalid_request_error' });
  if (task === undefined) return notFound;
  const progress = progressOf(task, call.gateway.now());
  if (progress.state === 'succeeded') return serveVideo(call, task, progress.finishedAt ?? 0);
  const message = `Task is not completed yet, current status: ${taskWords[progress.state]}`;
  const reply = gatewayError(400, message, { type: 'invalid_request_error' });
  return recordPoll(call, id, progress, reply, true);
}

const taskWords = {
  queued: 'QUEUED',
  running: 'IN_PROGRESS',
  succeeded: 'SUCCESS',
  failed: 'FAILURE',
} as const;
const videoWords = {
  queued: 'queued',
  running: 'in_progress',
  succeeded: 'completed',
  failed: 'failed',
} as const;

/**
 * Finds a task. Returns undefined for any key other than the one that submitted the task, because the task does not
 * exist for other keys.
 */
function ownTask(call: Call, id: string): Task | undefined {
  const task = findTask(call.gateway.stateDir, 'c', id);
  return task?.key === call.key ? task : undefined;
}

function findQueriedTask(call: Call, id: string): { task: Task; progress: Progress } {
  const { gateway, requestId } = call;
  const task = ownTask(call, id);
  if (task === undefined) throw new RefusedCall(taskNotFound('c', requestId));
  return { task, progress: progressOf(task, gateway.now()) };
}

function resultUrl(call: Call, task: Task, { state }: Progress): string | undefined {
  return state === 'succeeded' ? `${call.gateway.url}/v1/videos/${task.id}/content` : undefined;
}

function failReason({ outcome }: Task, { state }: Progress): string {
  return state === 'failed' && outcome.end === 'fails' ? outcome.message : '';
}

function failCode({ outcome }: Task): string {
  if (outcome.end !== 'fails') return '';
  return {
    filtered: '1027',
    rejected: '2013',
    'unreachable-asset': '2013',
    failed: '1000',
    'failed-ext': '1000',
  }[outcome.reason];
}

/** Returns the upstream's own response. Real gateways include it in their response. */
function upstreamView(task: Task, progress: Progress): object {
  const { resolution, ratio, model } = task;
  const error =
    progress.state === 'failed' ? { code: failCode(task), message: failReason(task, progress) } : null;
  const view = { id: task.id.slice(-15), model, status: progress.state, error, resolution, ratio };
  return { task: { ...view, duration: task.seconds, task_type: 'generation', modality: 'video' } };
}

function secondsOf(ms: number): number {
  return Math.floor(ms / 1000);
}
