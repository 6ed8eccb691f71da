import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../../json.ts';

/**
 * The specification does not show Protocol C's responses (2.5, 3.3). This module lists what gateways send: their own
 * envelopes, and the upstream bodies that relays pass on.
 */

/** A task's state, according to a status word. */
export type TaskState = 'queued' | 'running' | 'succeeded' | 'failed';

const vocabulary: Record<TaskState, string> = {
  queued:
    'queued queue queueing queuing inqueue pending submitted notstart notstarted created preparing waiting wait starting accepted scheduled unknown',
  running: 'inprogress processing running generating run started active dreaming',
  succeeded: 'completed complete succeeded succeed success successful finished done ok ready',
  failed:
    'failed failure fail error errored cancelled canceled expired timeout timedout rejected aborted notfound deleted terminated blocked',
};
const stateByWord = new Map<string, TaskState>([['', 'queued']]);
for (const [state, words] of Object.entries(vocabulary))
  for (const word of words.split(' ')) stateByWord.set(word, state as TaskState);

/** Returns the state for a status word in any spelling (`IN_PROGRESS`, `in-queue`); undefined for an unlisted word. */
export function stateOf(word: string): TaskState | undefined {
  return stateByWord.get(word.toLowerCase().replace(/[\s_-]/g, ''));
}

const statusNames = ['task_status', 'taskStatus', 'status', 'state'];
const ownIdNames = ['task_id', 'id', 'taskId', 'video_id', 'job_id'];
const containers = ['data', 'data.0', 'task', 'output', 'result', 'data.task'];

/** A task in a response: the object that contains its state, and the status word as received. */
export interface ReportedTask {
  holder: JsonObject;
  word: string;
}

/**
 * Finds the task in the response to a query; undefined if the body contains no state. A status word at the top level is
 * the task's if the top level also contains the task's id or video. Otherwise, the word may be the envelope's
 * (`"status":"success"` around a running task). Ignores numeric statuses, which some upstreams send in addition.
 */
export function taskIn(body: JsonObject): ReportedTask | undefined {
  const outer = taskAt(body);
  const inner = containers.map((path) => taskAt(at(body, path))).find((task) => task !== undefined);
  if (outer === undefined || (inner !== undefined && !hasOwnId(body))) return inner;
  const mayBeEnvelope = /^(success|ok|error|fail)$/i.test(outer.word);
  if (mayBeEnvelope && inner !== undefined) return inner;
  return mayBeEnvelope && !hasOwnId(body) && !provesVideo(body) ? undefined : outer;
}

// Whether a body describes a task, even if it contains no id. (Query responses of Vidu and Zhipu contain no id.)
function provesVideo(body: JsonObject): boolean {
  const isTaskWord = ['task_status', 'taskStatus'].some((name) => typeof body[name] === 'string');
  return isTaskWord || urlPaths.some((path) => isWebUrl(textAt(body, path) ?? ''));
}

function taskAt(value: Json | undefined): ReportedTask | undefined {
  if (!isObject(value)) return undefined;
  const word = statusNames.map((name) => at(value, name)).find((value) => typeof value === 'string');
  return word === undefined ? undefined : { holder: value, word };
}

function hasOwnId(body: JsonObject): boolean {
  return body['object'] === 'video' || ownIdNames.some((name) => idAt(body, name) !== undefined);
}

const successCodes = new Set([
  '',
  '0',
  '200',
  '201',
  '202',
  '10000',
  'success',
  'succeed',
  'succeeded',
  'ok',
]);

/**
 * Whether an object reports an error, regardless of the HTTP status: `error`, `success:false`, or a code that is not a
 * known success code.
 */
export function reportsError(value: Json | undefined): boolean {
  if (!isObject(value)) return false;
  if (value['success'] === false || isBadCode(at(value, 'base_resp.status_code'))) return true;
  if (isBadCode(value['code']) || isBadCode(value['err_code'])) return true;
  const error = value['error'];
  if (!isObject(error)) return error === true || (typeof error === 'string' && error.trim() !== '');
  return isBadCode(error['code']) || ['message', 'type'].some((name) => textAt(error, name) !== undefined);
}

function isBadCode(code: Json | undefined): boolean {
  if (typeof code !== 'string' && typeof code !== 'number') return false;
  return !successCodes.has(String(code).trim().toLowerCase());
}

const progressNames = ['progress', 'info.progress'];

/**
 * Returns the progress in percent, 0 to 100, from `37`, `"37%"`, `"37"`, or 0.37 (a number below 1 is a fraction);
 * undefined if there is none.
 */
export function progressIn(task: JsonObject): number | undefined {
  return progressNames.map((path) => percent(at(task, path))).find((progress) => progress !== undefined);
}

function percent(value: Json | undefined): number | undefined {
  if (typeof value !== 'number' && typeof value !== 'string') return undefined;
  const [, digits, sign] = /^(-?\d+(?:\.\d+)?)\s*(%?)$/.exec(String(value).trim()) ?? [];
  if (digits === undefined) return undefined;
  const number = Number(digits);
  const isFraction = sign === '' && number > 0 && number < 1;
  return Math.round(Math.min(100, Math.max(0, isFraction ? number * 100 : number)));
}

// Paths of a video's URL, best first. Excludes cover images, polling URLs and paths on the server's disk.
const urlPaths = [
  'result_url',
  'url',
  'video_url',
  'metadata.url',
  'video.url',
  'content.video_url',
  'content.url',
  'content.result_url',
  'output.video_url',
  'output.urls.0',
  'outputs.video_url',
  'output.video.url',
  'task_result.videos.0.url',
  'result.videos.0.url',
  'results.videos.0.url',
  'video_result.0.url',
  'creations.0.url',
  'unsigned_urls.0',
  'videos.0.url',
];
// The paths of objects that may contain the URL: the response itself, its envelopes, and the raw upstream body, which
// some gateways include.
const urlRoots = [
  '',
  'data.',
  'data.0.',
  'task.',
  'data.task.',
  'data.data.',
  'data.data.data.',
  'data.data.task.',
];
const legacyUrlPaths = ['fail_reason', 'data.fail_reason'];

// Some gateways send a list of URLs, others a single URL.
const allUrlPaths = [
  ...urlRoots.flatMap((root) => urlPaths.map((path) => root + path)),
  ...legacyUrlPaths,
].flatMap((path) => [path, `${path}.0`]);

/**
 * Returns a finished video's http(s) URL; undefined if the response contains none. Older gateways put the URL into
 * `fail_reason`.
 */
export function videoUrlIn(body: JsonObject): string | undefined {
  return allUrlPaths.map((path) => textAt(body, path)).find((url) => url !== undefined && isWebUrl(url));
}

/** Whether a URL is an absolute http(s) URL without white space, control characters, a user name or a password. */
export function isWebUrl(url: string): boolean {
  if (!/^https?:\/\/[^\s\p{Cc}]+$/iu.test(url) || !URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username === '' && password === '';
}

const reasonPaths = [
  'error.message',
  'error',
  'fail_reason',
  'task_status_msg',
  'reason',
  'failure_reason',
  'err_msg',
  'base_resp.status_msg',
  'message',
  'result_url',
  'err_code',
];

/**
 * Returns the reason that the gateway gives for a task's failure; undefined if it gives none. Searches the task, and
 * then the object that encloses the task.
 */
export function reasonIn(task: JsonObject, body: JsonObject): string | undefined {
  const texts = [task, body].flatMap((holder) => reasonPaths.map((path) => textAt(holder, path)));
  return texts.find(
    (text) => text !== undefined && !isWebUrl(text) && !successCodes.has(text.trim().toLowerCase()),
  );
}

const nativeCodePaths = ['error.code', 'err_code', 'code', 'base_resp.status_code', 'error.type'];

/** Returns the upstream's own error code for a failed task; undefined if there is none. */
export function nativeCodeOf(task: JsonObject, body: JsonObject): string | undefined {
  const codes = [task, body].flatMap((holder) => nativeCodePaths.map((path) => idAt(holder, path)));
  return codes.find((code) => code !== undefined && isBadCode(code));
}
