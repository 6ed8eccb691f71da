import type { ErrorCode } from '../../errors.ts';
import type { Failure, Reply } from '../../exchange.ts';
import { classify, readFailure } from '../../http/failures.ts';
import { at, idAt, isObject, textAt, type Json } from '../../json.ts';

/**
 * What the error of a call proves about it, in the words of a submission's verdict. `unknown`: it may have been
 * handled. `unlisted`: the code is not known.
 */
export type CallOutcome = 'unavailable' | 'rejected' | 'unknown' | 'unlisted';

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
