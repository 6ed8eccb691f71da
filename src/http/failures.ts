import type { ErrorCode } from '../errors.ts';
import type { Failure, Reply } from '../exchange.ts';
import { idAt, isObject, textAt, tryNestedJson, tryParseJson, type Json, at } from '../json.ts';

// The paths of an error's message, best first.
const messagePaths = [
  'error.message',
  'error',
  'Response.Error.Message',
  'message',
  'msg',
  'detail',
  'detail.0.msg',
  'base_resp.status_msg',
  'output.message',
  'header.message',
];
const codePaths = [
  'error.code',
  'error.type',
  'error.status',
  'Response.Error.Code',
  'code',
  'base_resp.status_code',
  'output.code',
  'header.code',
];
const requestIdPaths = ['Response.RequestId', 'request_id', 'requestId', 'header.reqid'];
const requestIdHeaders = ['x-oneapi-request-id', 'x-request-id', 'x-tt-logid'];

// The maximum message length, in UTF-16 code units. Text is truncated to this length before a pattern is applied.
const maxMessageLength = 4000;
const maxIdLength = 200;

/** Returns a body's JSON value. Unwraps an array with one element, which some Google endpoints send. */
export function bodyOf(reply: Reply): Json | undefined {
  const body = tryParseJson(reply.text);
  return Array.isArray(body) && body.length === 1 && isObject(body[0]) && 'error' in body[0] ? body[0] : body;
}

/**
 * Returns the gateway's id of a call, from the response's headers, its body, or `(request id: …)` at the end of a
 * message; undefined if there is none.
 */
export function requestIdOf(reply: Reply, body: Json | undefined = bodyOf(reply)): string | undefined {
  const headerId = requestIdHeaders.map((name) => reply.headers[name]).find((value) => value);
  const bodyId = requestIdPaths.map((path) => textAt(body, path)).find((value) => value);
  const id = headerId ?? bodyId ?? idInWords(fullMessage(body)?.slice(-maxMessageLength) ?? '');
  return id?.slice(0, maxIdLength);
}

function idInWords(words: string): string | undefined {
  return /\(request id: ([^()]+)\)/.exec(words)?.[1];
}

/**
 * Returns an error body's message, in any format that gateways use, up to 4000 UTF-16 code units; undefined if there is
 * none. Converts a web page to its text.
 */
export function messageIn(body: Json | undefined): string | undefined {
  const message = fullMessage(body);
  if (message === undefined) return undefined;
  return (isMarkup(message) ? markupText(message) : message).slice(0, maxMessageLength);
}

// Returns a body's message. If the message is the JSON of the upstream's own response, returns the message in that
// JSON.
function fullMessage(body: Json | undefined, depth = 0): string | undefined {
  const message = messagePaths.map((path) => textAt(body, path)).find((text) => text !== undefined);
  if (message === undefined || depth > 2) return message;
  return fullMessage(tryNestedJson(message), depth + 1) ?? message;
}

/** Whether a body's `error` reports an error. Relays written in Go or PHP send an empty one with a success. */
export function hasError(error: Json | undefined): boolean {
  if (!isObject(error)) return Array.isArray(error) ? error.length > 0 : Boolean(error);
  const code = error['code'] ?? 0;
  const isCode = code !== 0 && code !== '0' && code !== '';
  return isCode || ['message', 'type'].some((name) => textAt(error, name) !== undefined);
}

/** Returns the gateway's own error code as text; undefined if there is none. */
export function nativeCodeIn(body: Json | undefined): string | undefined {
  return codePaths.map((path) => idAt(body, path)).find((code) => code !== undefined);
}

/**
 * Returns the failure that an unsuccessful response reports. The code and the message take precedence over the status.
 * For example, a low balance may be reported as 401 or 403, a missing model as 503, and "not found" as 400
 * (specification 7). For an error with a 2xx status, the status in the error's code is used, if there is one.
 */
export function readFailure(reply: Reply): Failure {
  const body = bodyOf(reply);
  const message = messageIn(body) ?? fallbackMessage(reply);
  const nativeCode = nativeCodeIn(body)?.slice(0, maxIdLength);
  const type = textAt(body, 'error.type')?.slice(0, maxIdLength);
  const words = `${nativeCode ?? ''} ${type ?? ''} ${message}`;
  return {
    code: classify(words, reply.status < 300 ? (statusIn(body, nativeCode) ?? reply.status) : reply.status),
    message,
    nativeCode,
    requestId: requestIdOf(reply, body),
    retryAfterMs: retryAfter(reply.headers, body),
  };
}

function statusIn(body: Json | undefined, nativeCode: string | undefined): number | undefined {
  const status = [idAt(body, 'error.http_code'), nativeCode].find((code) => /^[45]\d\d$/.test(code ?? ''));
  return status === undefined ? undefined : Number(status);
}

function fallbackMessage({ status, text }: Reply): string {
  if (text.trim() === '') return `HTTP ${status} with an empty body`;
  const words = (isMarkup(text) ? markupText(text) : text.trim()).slice(0, 300);
  return words === '' ? `HTTP ${status} with a page that has no text` : `HTTP ${status}: ${words}`;
}

// The text starts with the native code, so that `^1008 ` matches the code and not a number in a message.
const balanceWords =
  /insufficient[_ -]?((user|account|token)[_ -]?)?(quota|balance|funds|credit)|quota is (exhausted|not enough)|quota_not_enough|TokenStatusExhausted|balance (is )?(not enough|insufficient|exhausted|too low)|not enough (balance|quota|credit)|pre_consume_token_quota|_lifetime|billing_hard_limit|out of credit|arrears|arrearage|AccountOverdue|额度不足|余额不足|额度已用尽|预扣费额度失败|欠费|^1008 /i;
const policyWords =
  /content[_ -]?(policy|filter|moderation)|moderation|(?<!case[- ])sensitive|VoilationContent|ViolationContent|safety|prohibited[_ ](content|word|use)|responsible ai|risk not pass|^(1026|1027|1301|5041[1-4]) |bio_policy|敏感|违规/i;
const noModelWords =
  /model_not_found|no available channel|model .{0,80}(not found|does not exist|not exist)|no such model|无可用渠道/i;
const notFoundWords =
  /task_not_exist|task .{0,80}not (found|exist)|not[_ -]?found|does not exist|ResourceNotFound|invalid task_id|任务不存在/i;
const rateLimitWords =
  /rate[_ -]?limit|too many requests|RequestLimitExceeded|RESOURCE_EXHAUSTED|concurrency|^(1002|1302|1303|50429|50430) |请求数限制|负载已饱和/i;
const authWords =
  /invalid (token|api[_ -]?key)|invalid_api_key|unauthori[sz]ed|AuthFailure|authentication|not granted|permission|access_denied|no access to|^(1004|2049) |无效的令牌|无权/i;
const invalidWords =
  /invalid[_ -]?(request|param|argument|duration|resolution|ratio|image|api_platform|prompt|value)|bad[_ ]request|unprocessable|model_(price_error|mapping_failed)|is required|missing required|^(120[0-3]|2013) /i;

// Matches a noun and a denial in either order. `model.request` and `api.model.read` are scopes of a key, not models.
const modelOrVoice = '\\b(?:model|speaker|voice)s?\\b(?!\\.\\w)';
const denial =
  'no access|not have access|permission|denied|forbidden|unauthori[sz]ed|unsupported|mismatched|not (?:granted|authori[sz]ed|allowed|permitted|supported)';
const oneModelWords = new RegExp(
  `(?:${denial}).{0,80}${modelOrVoice}|${modelOrVoice}.{0,80}(?:${denial})|requested resource not granted|无权.{0,40}(?:模型|音色)|(?:模型|音色|发音人|声音).{0,40}(?:授权|权限|无权|不支持)`,
  'i',
);

// Matches the denial of an invalid key. Its message may mention the requested model too.
const invalidKeyWords =
  /(?:invalid|incorrect|expired|revoked|disabled|missing)(?:[ _-](?:api|access|auth\w*|bearer)){0,3}[ _-](?:key|token|credential)|(?:key|token|credential)s? (?:(?:is|are|has|has been) )?(?:invalid|incorrect|not valid|expired|revoked|disabled)|无效的令牌|令牌.{0,10}(?:无效|过期|禁用)/i;

/**
 * Whether the message of an `auth` error denies access only to a model or a voice. If so, the gateway may accept the
 * same key for other requests.
 */
export function deniesModelOrVoice(message: string): boolean {
  const words = message.slice(0, maxMessageLength);
  return oneModelWords.test(words) && !invalidKeyWords.test(words);
}

const codeByStatus: Record<number, ErrorCode> = {
  401: 'auth',
  402: 'balance',
  403: 'auth',
  404: 'not_found',
  408: 'server_error',
  429: 'rate_limited',
};

/**
 * Returns the error code for a message and an HTTP status. The message takes precedence. Examines only the start
 * of a long message.
 */
export function classify(text: string, status: number): ErrorCode {
  const words = text.slice(0, maxMessageLength + 2 * maxIdLength);
  if (balanceWords.test(words)) return 'balance';
  if (noModelWords.test(words)) return 'not_found';
  if (status === 429 || (status < 400 && rateLimitWords.test(words))) return 'rate_limited';
  if (status < 500 && status !== 401 && policyWords.test(words)) return 'content_policy';
  if (status < 500 && status !== 401 && status !== 403 && notFoundWords.test(words)) return 'not_found';
  if (status < 400 && authWords.test(words)) return 'auth';
  if (status < 400 && invalidWords.test(words)) return 'invalid_request';
  return (
    codeByStatus[status] ?? (status >= 500 ? 'server_error' : status >= 400 ? 'invalid_request' : 'bad_reply')
  );
}

// The maximum page length to examine, in UTF-16 code units.
const maxPageLength = 64 * 1024;

/** Whether a body is a web page or other markup, as returned by a proxy or for a wrong path. */
export function isMarkup(text: string): boolean {
  return /^\s*<(!doctype|!--|\?xml|[a-z][\w:-]*[\s/>])/i.test(text.slice(0, 1024));
}

/**
 * Returns the start of an unexpected response, for an error message, with a note if the response is a web page.
 * @param clean removes secrets. Called before truncation, because half of a Base64 key would not be recognized.
 */
export function excerptOf(text: string, clean = (whole: string): string => whole): string {
  const excerpt = clean(text.trim()).slice(0, 200);
  return isMarkup(text) ? `${excerpt} (a web page: check the base URL)` : excerpt;
}

/** Returns a page's text on one line: its title, or else its visible text; '' if it has neither. */
export function markupText(page: string): string {
  const head = page.slice(0, maxPageLength);
  const title = /<title[^<>]*>([^<]*)/i.exec(head)?.[1] ?? '';
  return plainText(title) || plainText(visibleText(head));
}

// Returns the text between the tags, without scripts.
function visibleText(page: string): string {
  const [start = '', ...parts] = page.split('<');
  const texts = parts.map((part) =>
    /^(script|style)\b|^[^>]*$/i.test(part) ? '' : part.slice(part.indexOf('>') + 1),
  );
  return [start, ...texts].join(' ');
}

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: ' ' };

function plainText(text: string): string {
  return text
    .replace(/&(?:#(\d{1,7})|(amp|lt|gt|quot|nbsp));/gi, (entity, number?: string, name?: string) => {
      if (name !== undefined) return entities[name.toLowerCase()] ?? entity;
      const code = Number(number);
      return code <= 0x10ffff ? String.fromCodePoint(code) : entity;
    })
    .replace(/\s+/g, ' ')
    .trim();
}

const adviceByCode: Partial<Record<ErrorCode, string>> = {
  auth: 'Check the key: "mgw auth status" shows its source, and "mgw auth login" stores another one.',
  balance: 'Top up the account of the key, or use the key of another account.',
};

/** Returns advice on a refusal's error code (specification 5.1); undefined if there is none. */
export function adviceFor(code: ErrorCode): string | undefined {
  return adviceByCode[code];
}

/** Returns a gateway's message as a sentence, followed by the advice, if any. */
export function withAdvice(message: string, advice: string | undefined): string {
  return advice === undefined ? message : `${asSentence(message)} ${advice}`;
}

/** Returns text that ends with a full stop, added if needed, so that another sentence can follow. */
export function asSentence(text: string): string {
  const trimmed = text.trimEnd();
  return /[.!?。！？]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** Returns a message, followed by a sentence with the delay that the gateway requested, if any. */
export function withRetryDelay(message: string, { retryAfterMs = 0 }: Pick<Failure, 'retryAfterMs'>): string {
  return retryAfterMs > 0
    ? `${asSentence(message)} Try again in ${Math.ceil(retryAfterMs / 1000)} s.`
    : message;
}

// The maximum length of a header to parse, in UTF-16 code units.
const maxHeaderLength = 100;

/**
 * Returns the minimum delay before a retry, in ms, from `Retry-After` (seconds or an HTTP date), `retry-after-ms` or
 * Google's `RetryInfo`; undefined if none is valid. Never negative.
 */
export function retryAfter(
  headers: Record<string, string>,
  body?: Json,
  now: number = Date.now(),
): number | undefined {
  const delays = [
    parseNumber(headers['retry-after-ms'], 1),
    ...(headers['retry-after'] ?? '')
      .slice(0, maxHeaderLength)
      .split(/,\s(?=\d+$)/)
      .map((value) => parseRetryAfter(value, now)),
    retryInfo(body),
  ].filter((ms) => ms !== undefined);
  return delays.length > 0 ? Math.max(0, ...delays) : undefined;
}

function parseRetryAfter(value: string, now: number): number | undefined {
  if (/^\s*-?[\d.]+(e\d+)?\s*$/i.test(value)) return parseNumber(value, 1000);
  // An HTTP date contains a time of day. Date.parse alone would accept almost any word and number.
  const date = /\d\d:\d\d:\d\d/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(date) ? undefined : date - now;
}

function parseNumber(text: string | undefined, unitMs: number): number | undefined {
  const value = text === undefined || text.trim() === '' ? Number.NaN : Number(text);
  return Number.isFinite(value) ? value * unitMs : undefined;
}

function retryInfo(body: Json | undefined): number | undefined {
  const details = at(body, 'error.details');
  const info = Array.isArray(details)
    ? details.find((entry) => isObject(entry) && 'retryDelay' in entry)
    : undefined;
  const seconds = /^([\d.]+)s$/.exec(textAt(info, 'retryDelay') ?? '')?.[1];
  return parseNumber(seconds, 1000);
}
