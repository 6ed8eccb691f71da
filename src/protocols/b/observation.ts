import type { ErrorCode } from '../../errors.ts';
import type { Failure, Reply } from '../../exchange.ts';
import { bodyOf, classify, readFailure, requestIdOf } from '../../http/failures.ts';
import { at, idAt, isObject, textAt, type Json, type JsonObject } from '../../json.ts';
import type { Observation, QueryVerdict, Result, Source } from '../protocol.ts';
import { isSuccess, judgeFailedQuery, inconclusive, taskFailure } from '../verdicts.ts';
import { shownValue } from '../violations.ts';

/**
 * Reads the response to a status query (specification 2.4, 3.2). A truncated response is not valid JSON, so it proves
 * nothing about the task. A valid one counts even if its length was wrong.
 */
export function readQuery(reply: Reply, handle: string): QueryVerdict {
  const body = bodyOf(reply);
  const error = callError(body);
  if (!isSuccess(reply)) {
    const verdict = judgeFailedQuery(reply);
    const isDecided = verdict.kind !== 'again' || error === undefined || reply.status >= 500;
    return isDecided ? verdict : judgeCallError(reply, error);
  }
  if (error !== undefined) return judgeCallError(reply, error);
  return observe(reply, body, handle) ?? inconclusive(reply, 'task status');
}

function judgeCallError(reply: Reply, error: Json): QueryVerdict {
  const { outcome, failure } = readCallError(reply, error);
  if (outcome === 'unlisted') return judgeFailedQuery(reply);
  if (outcome === 'rejected' && failure.code === 'auth') return { kind: 'unauthorized', failure };
  // A query's body contains only the task id, so InvalidParameter must refer to that id.
  const isMissing = /^(ResourceNotFound|InvalidParameter)/.test(failure.nativeCode ?? '');
  return isMissing
    ? { kind: 'missing', failure: { ...failure, code: 'not_found' } }
    : { kind: 'again', failure };
}

// Returns undefined if the body has no state. Success requires `FINISH`, `ErrCode` 0, and an absent, null or empty
// `ErrCodeExt`. `FINISH` with neither a readable `ErrCode` nor a sign of failure is an unproven success without files
// to fetch.
function observe(reply: Reply, body: Json | undefined, handle: string): Observation | undefined {
  const observation = readState(reply, body);
  const foreignWarning = foreignTaskWarning(body, handle);
  if (observation === undefined || foreignWarning === undefined) return observation;
  return {
    ...observation,
    warning: observation.warning === undefined ? foreignWarning : `${observation.warning} ${foreignWarning}`,
  };
}

// Returns a warning if the response is for a different task; otherwise undefined. The mismatch has no other effect.
function foreignTaskWarning(body: Json | undefined, handle: string): string | undefined {
  const id = idAt(body, 'Response.AigcVideoTask.TaskId');
  if (id === undefined || id === handle) return undefined;
  return `The response is for ${shownValue(id)}, not the requested task.`;
}

function readState(reply: Reply, body: Json | undefined): Observation | undefined {
  const response = at(body, 'Response');
  const status = statusOf(response);
  if (body === undefined || status === undefined) return undefined;
  const task = at(response, 'AigcVideoTask');
  const common = { kind: 'observation' as const, nativeStatus: status, requestId: requestIdOf(reply, body) };
  if (status === 'ABORTED' || (status === 'FINISH' && hasFailed(task))) {
    const failure = failureOf(reply, body, task, status);
    const warning = filesDespiteFailure(task);
    return { ...common, state: 'failed', failure, results: [], usage: usageOf(task), warning };
  }
  if (status === 'FINISH') return { ...common, state: 'succeeded', usage: usageOf(task), ...outcomeOf(task) };
  const state = status === 'WAITING' ? 'queued' : 'running';
  return { ...common, state, results: [], progress: progressOf(task) };
}

function failureOf(reply: Reply, body: Json, task: Json | undefined, status: string): Failure {
  const number = at(task, 'ErrCode') === 0 ? undefined : idAt(task, 'ErrCode');
  const code = idAt(task, 'ErrCodeExt') ?? number;
  const outcome = code === undefined ? status : `${status} and code ${code}`;
  const message = textAt(task, 'Message') ?? `The task ended with status ${outcome}, and gave no message.`;
  return taskFailure(reply, body, message, code ?? status);
}

// Returns a task's status. The inner status takes precedence (design 6). However, an outer `ABORTED` overrides any
// inner status except `FINISH`, because an abort may be reported only there.
function statusOf(response: Json | undefined): string | undefined {
  const inner = statusIn(at(response, 'AigcVideoTask'));
  const outer = statusIn(response);
  return outer === 'ABORTED' && inner !== 'FINISH' ? outer : (inner ?? outer);
}

function statusIn(object: Json | undefined): string | undefined {
  const status = at(object, 'Status');
  if (status === undefined || status === null || status === '') return undefined;
  return typeof status === 'string' ? status : JSON.stringify(status);
}

// Any non-empty ErrCodeExt means failure, even "0" (specification 3.2).
function hasFailed(task: Json | undefined): boolean {
  const ext = at(task, 'ErrCodeExt');
  const code = at(task, 'ErrCode');
  const isNonZero = typeof code === 'number' ? code !== 0 : typeof code === 'string' && /[1-9]/.test(code);
  return isNonZero || !(ext === undefined || ext === null || ext === '');
}

function outcomeOf(task: Json | undefined): Pick<Observation, 'results' | 'unproven' | 'warning'> {
  if (at(task, 'ErrCode') !== 0)
    return {
      results: [],
      unproven: true,
      warning: 'The task finished without ErrCode 0, so its success is unproven.',
    };
  const results = filesOf(task).map(resultOf);
  if (results.length === 0)
    return { results, warning: 'The task succeeded, but the response lists no file.' };
  const withoutUrl = results.filter(({ sources }) => sources.length === 0).length;
  return withoutUrl === 0
    ? { results }
    : { results, warning: `${withoutUrl} of ${results.length} files have no URL.` };
}

function filesOf(task: Json | undefined): Json[] {
  const files = at(task, 'Output.FileInfos');
  return Array.isArray(files) ? files : [];
}

// The members of a file that its `details` do not include: the URL, and the content itself.
const hiddenMembers = new Set(['FileUrl', 'FileContent']);

// The file's host is not the gateway, so the key is never sent there (specification 4.2). A file without a URL becomes
// a result without sources, so that it is still reported.
function resultOf(file: Json): Result {
  const url = textAt(file, 'FileUrl');
  if (!isObject(file)) return { sources: [] };
  const details = Object.entries(file).filter(
    ([name, value]) => !hiddenMembers.has(name) && value !== null && value !== '',
  );
  const sources: Source[] = url === undefined ? [] : [{ kind: 'url', url, key: 'never' }];
  return { sources, mime: mimeOf(file), details: Object.fromEntries(details) };
}

const mimeByType = new Map([
  ['mp4', 'video/mp4'],
  ['mov', 'video/quicktime'],
  ['webm', 'video/webm'],
]);

function mimeOf(file: JsonObject): string | undefined {
  const type = textAt(file, 'FileType')?.toLowerCase() ?? '';
  return type.includes('/') ? type : mimeByType.get(type);
}

// Returns a warning with the URLs of a failed task's files; undefined if there are none. Omits the queries, because
// warnings are logged, and a query may contain a signature.
function filesDespiteFailure(task: Json | undefined): string | undefined {
  const urls = filesOf(task)
    .flatMap((file) => textAt(file, 'FileUrl') ?? [])
    .map((url) => url.replace(/[?#].*$/s, '?…'));
  return urls.length === 0 ? undefined : `The task failed, but the gateway lists a file: ${urls.join(' ')}`;
}

function usageOf(task: Json | undefined): JsonObject | undefined {
  const usage = at(task, 'Output.Usage');
  return isObject(usage) ? usage : undefined;
}

function progressOf(task: Json | undefined): number | undefined {
  const progress = at(task, 'Progress');
  return typeof progress === 'number' && progress >= 0 && progress <= 100 ? progress : undefined;
}

/**
 * What a call's error proves. `unavailable`, `rejected` and `unknown` are the kinds of a submission's verdict; with
 * `unknown`, the call may have been handled. `unlisted`: the error code has no known prefix.
 */
type CallOutcome = 'unavailable' | 'rejected' | 'unknown' | 'unlisted';

// Checked before the code's prefix: if the balance is too low, nothing was created.
const emptyBalance = /\.\w*(InsufficientBalance|BalanceInsufficient|BalanceNotEnough|Arrears|Overdue)/i;

// The outcome for each prefix of the dotted error code. Only a code that is returned before anything is
// created is a refusal.
const outcomes: [RegExp, CallOutcome, ErrorCode][] = [
  [/^RequestLimitExceeded$/, 'unavailable', 'rate_limited'],
  [
    /^(AuthFailure|Unauthori[sz]edOperation|IpInBlacklist|IpNotInWhitelist|access_denied)$/,
    'rejected',
    'auth',
  ],
  [
    /^(InvalidParameter\w*|MissingParameter|UnknownParameter|InvalidRequest|invalid_request)$/,
    'rejected',
    'invalid_request',
  ],
  [
    /^(InvalidAction|ActionOffline|NoSuchVersion|NoSuchProduct|Unsupported\w+)$/,
    'rejected',
    'invalid_request',
  ],
  [/^(RequestSizeLimitExceeded|DryRunOperation)$/, 'rejected', 'invalid_request'],
  [/^(ResourceNotFound|model_not_found)$/, 'rejected', 'not_found'],
  [/^(insufficient_user_quota|pre_consume_token_quota_failed)$/, 'rejected', 'balance'],
  // A quota or resource pool is exhausted. The user decides when to retry.
  [/^(LimitExceeded|ResourceInsufficient)$/, 'rejected', 'rate_limited'],
  // Unlike HTTP 503, which proves that nothing was handled, these codes come with HTTP 200 and prove nothing.
  [/^(InternalError|FailedOperation|ServiceUnavailable)$/, 'unknown', 'server_error'],
  [/^(ResourceInUse|ResourceUnavailable|ResponseSizeLimitExceeded)$/, 'unknown', 'server_error'],
];

/**
 * Returns a call's error, `Response.Error` (specification 2.4, 7); undefined if the error is absent, null or empty.
 * Some relays send an empty `Error` with every response.
 */
export function callError(body: Json | undefined): Json | undefined {
  const error = at(body, 'Response.Error');
  const values = isObject(error) ? Object.values(error) : [error];
  return values.every((value) => value === undefined || value === null || value === '') ? undefined : error;
}

/** Returns what an error with HTTP 200 proves about the call, and the failure to report. */
export function readCallError(reply: Reply, error: Json): { outcome: CallOutcome; failure: Failure } {
  const nativeCode = idAt(error, 'Code');
  const callMeaning = knownOutcome(nativeCode ?? '');
  const message = textAt(error, 'Message') ?? (typeof error === 'string' ? error : undefined);
  const failure = {
    ...readFailure(reply),
    message: message ?? nativeCode ?? 'an error without a message',
    nativeCode,
  };
  if (callMeaning === undefined)
    return { outcome: 'unlisted', failure: { ...failure, code: unlistedCode(nativeCode, message) } };
  const { outcome, code } = callMeaning;
  return {
    outcome,
    failure: { ...failure, code: outcome === 'rejected' ? refineCode(code, nativeCode, message) : code },
  };
}

function knownOutcome(nativeCode: string): { outcome: CallOutcome; code: ErrorCode } | undefined {
  if (emptyBalance.test(nativeCode)) return { outcome: 'rejected', code: 'balance' };
  const [prefix = ''] = nativeCode.split('.', 1);
  const row = outcomes.find(([pattern]) => pattern.test(prefix));
  return row && { outcome: row[1], code: row[2] };
}

// Replaces an error code with a more specific code. InvalidParameter may also mean refused content or an empty balance,
// and the message shows which.
function refineCode(code: ErrorCode, nativeCode = '', message = ''): ErrorCode {
  const classified = classify(`${nativeCode} ${message}`, 200);
  const isMoreSpecific = classified === 'balance' || (classified === 'content_policy' && code !== 'auth');
  return isMoreSpecific ? classified : code;
}

function unlistedCode(nativeCode = '', message = ''): ErrorCode {
  const classified = classify(`${nativeCode} ${message}`, 200);
  return classified === 'bad_reply' ? 'server_error' : classified;
}
