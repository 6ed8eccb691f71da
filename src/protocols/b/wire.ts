import { MgwError, type ErrorCode } from '../../errors.ts';
import {
  type Exchange,
  jsonBody,
  jsonHeaders,
  type Reply,
  type SubmitVerdict,
  type Failure,
} from '../../exchange.ts';
import { bodyOf, classify, readFailure } from '../../http/failures.ts';
import { parseCutJson, type Json, type JsonObject, at, idAt, isObject, textAt } from '../../json.ts';
import { actionTaskIdIn } from '../task-id.ts';
import { isSuccess, judgeFailedSubmission, unreadable } from '../verdicts.ts';

type Action = 'CreateAigcVideoTask' | 'DescribeTaskDetail';

// The path is the root (specification 4.2). The version is that of the interface, not of the model.
function call(action: Action, body: JsonObject): Exchange {
  const headers = { ...jsonHeaders, 'X-TC-Version': '2018-07-17', 'X-TC-Action': action };
  return { method: 'POST', path: '/', headers, body: jsonBody(body) };
}

/** The exchange that creates a task (specification 4.2). */
export function submission(body: JsonObject): Exchange {
  return call('CreateAigcVideoTask', body);
}

/**
 * The request that queries a task. The id is in the body, so it may be any text.
 * @throws MgwError('result_unavailable') if the handle is blank.
 */
export function query(handle: string): Exchange {
  if (handle.trim() === '')
    throw new MgwError('result_unavailable', 'An empty task id cannot be queried.', { charged: 'yes' });
  return call('DescribeTaskDetail', { TaskId: handle });
}

/**
 * Reads the response to a submission. A task id in a 2xx response proves a task, even if the response was cut after it
 * or also contains an error. An error in a 2xx response is a refusal only if its code is returned before anything is
 * created (specification 7, design 5).
 */
export function readSubmission(reply: Reply): SubmitVerdict {
  if (!isSuccess(reply)) return judgeFailedSubmission(reply);
  const whole = bodyOf(reply);
  const body = whole ?? parseCutJson(reply.text);
  const handle = actionTaskIdIn(body);
  const error = callError(body);
  if (handle !== undefined) return { kind: 'accepted', handle, warning: oddity(reply, error) };
  if (error === undefined) return { kind: 'unknown', failure: unreadable(reply, 'task id') };
  const { outcome, failure } = readCallError(reply, error);
  const certain = reply.complete && whole !== undefined;
  if (!certain || outcome === 'unlisted') return { kind: 'unknown', failure };
  return { kind: outcome, failure };
}

function oddity(reply: Reply, error: Json | undefined): string | undefined {
  if (error === undefined) return undefined;
  const { nativeCode, message } = readCallError(reply, error).failure;
  const said = nativeCode === undefined ? message : `${nativeCode}: ${message}`;
  return `The gateway reported an error next to the task id: ${said}.`;
}

/**
 * What the error of a call proves about it, in the words of a submission's verdict. `unknown`: it may have been
 * handled. `unlisted`: the code is not known.
 */
type CallOutcome = 'unavailable' | 'rejected' | 'unknown' | 'unlisted';

// Whatever the first part of the code is: without money, nothing was created.
const noMoney = /\.\w*(InsufficientBalance|BalanceInsufficient|BalanceNotEnough|Arrears|Overdue)/i;

// By the first dotted part of the code. Only a code that is given before anything is made counts as a refusal.
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
  // A quota or pool is exhausted: refused for now, and a person decides when to try again.
  [/^(LimitExceeded|ResourceInsufficient)$/, 'rejected', 'rate_limited'],
  // HTTP 503 says that nothing was handled. These codes come with HTTP 200, and do not say so.
  [/^(InternalError|FailedOperation|ServiceUnavailable)$/, 'unknown', 'server_error'],
  [/^(ResourceInUse|ResourceUnavailable|ResponseSizeLimitExceeded)$/, 'unknown', 'server_error'],
];

/**
 * The error of a call, `Response.Error` (specification 2.4, 7). Undefined if it is absent, null or empty, as in
 * responses of relays that send all members.
 */
export function callError(body: Json | undefined): Json | undefined {
  const error = at(body, 'Response.Error');
  const values = isObject(error) ? Object.values(error) : [error];
  return values.every((value) => value === undefined || value === null || value === '') ? undefined : error;
}

/** What a call's error under HTTP 200 proves, and what it means. */
export function readCallError(reply: Reply, error: Json): { outcome: CallOutcome; failure: Failure } {
  const nativeCode = idAt(error, 'Code');
  const known = knownOutcome(nativeCode ?? '');
  const message = textAt(error, 'Message') ?? (typeof error === 'string' ? error : undefined);
  const failure = {
    ...readFailure(reply),
    message: message ?? nativeCode ?? 'an error without words',
    nativeCode,
  };
  if (known === undefined)
    return { outcome: 'unlisted', failure: { ...failure, code: unlistedCode(nativeCode, message) } };
  const { outcome, code } = known;
  return {
    outcome,
    failure: { ...failure, code: outcome === 'rejected' ? refined(code, nativeCode, message) : code },
  };
}

function knownOutcome(nativeCode: string): { outcome: CallOutcome; code: ErrorCode } | undefined {
  if (noMoney.test(nativeCode)) return { outcome: 'rejected', code: 'balance' };
  const [first = ''] = nativeCode.split('.', 1);
  const row = outcomes.find(([pattern]) => pattern.test(first));
  return row && { outcome: row[1], code: row[2] };
}

// InvalidParameter also means refused content or an empty balance; the message tells which.
function refined(code: ErrorCode, nativeCode = '', message = ''): ErrorCode {
  const said = classify(`${nativeCode} ${message}`, 200);
  const finer = said === 'balance' || (said === 'content_policy' && code !== 'auth');
  return finer ? said : code;
}

function unlistedCode(nativeCode = '', message = ''): ErrorCode {
  const said = classify(`${nativeCode} ${message}`, 200);
  return said === 'bad_reply' ? 'server_error' : said;
}
