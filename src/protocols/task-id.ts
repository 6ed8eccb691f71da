import { at, idAt, textAt, type Json } from '../json.ts';

// Where a task's id is, best first. In a wrapped task `data.id` is a row number, so `data.task_id` goes before.
const idPaths = [
  'task_id',
  'id',
  'taskId',
  'data',
  'data.task_id',
  'data.taskId',
  'data.id',
  'data.0.task_id',
  'data.0.taskId',
  'data.0.id',
  'task.task_id',
  'task.id',
  'output.task_id',
  'result.task_id',
  'result.taskId',
  'result.id',
  'data.task.task_id',
  'data.task.id',
  'video_id',
  'job_id',
];
// An id of the call rather than of the task, if there is anything else that could hold one.
const lastIdPaths = ['requestId', 'request_id'];
const idHolders = ['data', 'output', 'result', 'task', 'error', 'code'];

/**
 * The task's id in an answer to a submission of Protocol C, as exact text. `doubtful` is for an answer that was cut
 * or that reports an error: only what cannot be mistaken for something else (a row's number) is then taken.
 */
export function taskIdIn(body: Json | undefined, doubtful: boolean): string | undefined {
  const found = idPaths.map((path) => idWithin(body, path, doubtful)).find((id) => id !== undefined);
  if (found !== undefined || doubtful || idHolders.some((name) => at(body, name) !== undefined)) return found;
  return lastIdPaths.map((path) => textAt(body, path)).find((id) => id !== undefined);
}

function idWithin(body: Json | undefined, path: string, doubtful: boolean): string | undefined {
  const value = at(body, path);
  if (typeof value === 'number' && (value <= 0 || (doubtful && /(^|\.)id$/.test(path)))) return undefined;
  const id = idAt(body, path);
  if (id === undefined || id.trim() === '') return undefined;
  return path !== 'data' || looksLikeId(id, doubtful) ? id : undefined;
}

// `data` may be a sentence as well.
function looksLikeId(value: string, doubtful: boolean): boolean {
  return doubtful ? /^(?=.*\d)[\w-]{12,}$/.test(value) : !/\s/.test(value);
}

const actionIdPaths = [
  'Response.TaskId',
  'Response.AigcVideoTask.TaskId',
  'TaskId',
  'Response.task_id',
  'task_id',
];

/** The task's id in an answer of Protocol B. A zero is how a relay writes that there is none. */
export function actionTaskIdIn(body: Json | undefined): string | undefined {
  return actionIdPaths.map((path) => idAt(body, path)).find((id) => id && !/^(0|-\d+)$/.test(id));
}

/**
 * The id of a task in an error response, in the form of any protocol: an operation's name (A), a `TaskId`
 * (B), or an id of Protocol C, which contains a digit, while some errors have a word as their `id`.
 */
export function strayTaskIdIn(body: Json | undefined): string | undefined {
  const name = textAt(body, 'name');
  if (name?.includes('/operations/')) return name;
  const id = actionTaskIdIn(body) ?? textAt(body, 'error.task_id') ?? taskIdIn(body, true);
  return id !== undefined && /\d/.test(id) ? id : undefined;
}
