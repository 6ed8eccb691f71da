import { declaresJson, jsonObject } from '../body.ts';
import { modelNotFound, operationError, taskNotFound } from '../envelopes.ts';
import type { Call, Reply, Route } from '../exchange.ts';
import { json, Refused } from '../exchange.ts';
import { serveVideo } from '../files.ts';
import { note, notePoll, tell } from '../journal.ts';
import { findModel } from '../models.ts';
import { orderA } from '../orders/a.ts';
import type { Progress, Task } from '../tasks.ts';
import { acceptOrder, findTask, progressOf } from '../tasks.ts';
import { videoOf } from '../videos.ts';

const A = { area: 'a', auth: 'bearer' } as const;
const SUBMIT = /^\/v1beta\/models\/([^/:]+)(?::|%3[Aa])predictLongRunning$/;
const OPERATION = /^\/v1beta\/models\/([^/]+)\/operations\/([^/]+)$/;
const FILE = /^\/v1beta\/files\/([^/:]+)(?::|%3[Aa])download$/;

/** Result files of the upstream are kept for two days. */
const FILE_LIFE_MS = 2 * 24 * 3600 * 1000;

/** Protocol A (specification 4.1). */
export const protocolA: readonly Route[] = [
  { ...A, method: 'POST', pattern: SUBMIT, kind: 'submit', handle: submit },
  { ...A, method: 'GET', pattern: OPERATION, kind: 'poll', handle: showOperation },
  { ...A, method: 'GET', pattern: FILE, kind: 'download', handle: download },
];

function submit(call: Call, name: string): Reply {
  const model = findModel('a', name, call.mayUse);
  if (model === undefined) return modelNotFound(name, call.requestId);
  const body = declaresJson(call) ? jsonObject(call) : undefined;
  if (body === undefined) return operationError(400, 'INVALID_ARGUMENT', 'The body must be a JSON object.');
  const task = acceptOrder(call, 'a', orderA(call, model, body));
  return tell(call, task.id, json(200, { name: nameOf(task), done: false }));
}

function showOperation(call: Call, model: string, id: string): Reply {
  const task = ownTask(call, id);
  if (task?.model !== model) return taskNotFound('a', call.requestId);
  const progress = progressOf(task, call.gateway.now());
  return notePoll(call, id, progress, operation(call, task, progress));
}

function operation(call: Call, task: Task, { finishedAt }: Progress): Reply {
  if (finishedAt === undefined) return json(200, { name: nameOf(task), done: false });
  return task.outcome.end === 'fails'
    ? json(200, { name: nameOf(task), done: true, error: { code: 13, message: task.outcome.message } })
    : finished(call, task, task.outcome.end === 'succeeds' ? task.outcome.filtered : 0);
}

function finished(call: Call, task: Task, filtered: number): Reply {
  const delivered = Array.from({ length: Math.max(0, task.samples - filtered) }, (_, sample) => sample);
  const inline = findModel('a', task.model)?.inline === true;
  const samples = delivered.map((sample) => ({
    video: inline ? inside(task, sample) : outside(call, task, sample),
  }));
  const reply = json(200, {
    name: nameOf(task),
    done: true,
    response: {
      '@type': 'type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse',
      generateVideoResponse: {
        ...(samples.length > 0 && { generatedSamples: samples }),
        ...(filtered > 0 && { raiMediaFilteredCount: filtered, raiMediaFilteredReasons: [FILTER_REASON] }),
      },
    },
  });
  return inline ? { ...reply, ended: (_, whole) => whole && noteInline(call, task, delivered) } : reply;
}

const FILTER_REASON =
  'The result was held back because it may violate the content policy. Support code: 58061214';

function inside(task: Task, sample: number): object {
  return { encodedVideo: Buffer.from(videoOf(task, sample)).toString('base64'), encoding: 'video/mp4' };
}

function outside(call: Call, { id }: Task, sample: number): object {
  return {
    uri: `${call.gateway.url}/v1beta/files/${id}s${sample}:download?alt=media`,
    encoding: 'video/mp4',
  };
}

function download(call: Call, file: string): Reply {
  const { gateway } = call;
  const [, id = '', sample = ''] = /^([a-z0-9]+)s(\d)$/.exec(file) ?? [];
  const task = ownTask(call, id);
  const { finishedAt } = task ? progressOf(task, gateway.now()) : {};
  if (task === undefined || finishedAt === undefined || Number(sample) >= deliveredOf(task)) return noFile();
  if (gateway.now() > finishedAt + FILE_LIFE_MS) return noFile();
  if (call.query.get('alt') !== 'media') return operationError(400, 'INVALID_ARGUMENT', 'alt must be media.');
  return serveVideo(call, task, finishedAt, Number(sample));
}

/** Samples that can be downloaded: none of a failed task, none that were held back. */
function deliveredOf({ samples, outcome }: Task): number {
  return outcome.end === 'succeeds' ? samples - outcome.filtered : 0;
}

/** Results inside the operation are fetched with it. */
function noteInline({ gateway }: Call, task: Task, samples: readonly number[]): void {
  for (const sample of samples) {
    const total = videoOf(task, sample).length;
    const span = { start: 0, end: total, total };
    note(gateway.stateDir, { kind: 'fetched', at: gateway.now(), task: task.id, sample, ...span });
  }
}

/** Queries and downloads take the key that submitted (specification 5); any other is refused with HTTP 403. */
function ownTask(call: Call, id: string): Task | undefined {
  const task = findTask(call.gateway.stateDir, 'a', id);
  if (task !== undefined && task.key !== call.key) {
    throw new Refused(operationError(403, 'PERMISSION_DENIED', 'The operation belongs to another key.'));
  }
  return task;
}

function nameOf({ model, id }: Task): string {
  return `models/${model}/operations/${id}`;
}

function noFile(): Reply {
  return operationError(404, 'NOT_FOUND', 'The file does not exist or has expired.');
}
