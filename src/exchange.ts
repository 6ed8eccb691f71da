import type { ErrorCode } from './errors.ts';
import type { Json } from './json.ts';

/** The header that carries the key, and the scheme before it (`Bearer`, or empty for none). Specification 5. */
export interface AuthScheme {
  header: string;
  scheme: string;
}

/** `Authorization: Bearer <key>`: Protocols A and B, models, Responses (specification 5). */
export const bearer: AuthScheme = { header: 'Authorization', scheme: 'Bearer' };

/** `X-Api-Key: <key>` with no scheme: speech (specification 5). */
export const xApiKey: AuthScheme = { header: 'X-Api-Key', scheme: '' };

/** One request to the gateway, without the key; the client adds it. */
export interface Exchange {
  method: 'GET' | 'POST';
  /** Absolute path below the base URL, percent-encoded, with its query if any. */
  path: string;
  headers: Record<string, string>;
  /** The body as it goes out, already serialised. */
  body?: string;
}

/** One request to any server: what an {@link Exchange} is to the gateway. */
export interface HttpRequest extends Omit<Exchange, 'method' | 'body'> {
  method: string;
  body?: string | Uint8Array | undefined;
}

/** One answer, as far as it arrived. */
export interface Reply {
  status: number;
  /** Names in lower case; a repeated header's values joined by `, `. */
  headers: Record<string, string>;
  /** The body decoded as UTF-8, as much of it as came and as the bound allowed. */
  text: string;
  /** False if the body was cut: a reset, an early end, a timeout, or the bound of its size. */
  complete: boolean;
  /** Media strings that were diverted to files while the body streamed, in the order they came. */
  spooled?: SpooledMedia[];
}

/**
 * A long Base64 string of a reply that was decoded to a file while it arrived. In `Reply.text` its place is
 * taken by the string `mgw-spool:<index>`.
 */
export interface SpooledMedia {
  /** Where the decoded bytes are, or undefined if they were only counted. */
  path?: string;
  bytes: number;
  /** Why the string was not strict Base64, if it was not. */
  fault?: string;
}

/** What a gateway's refusal or failure means, read from its status, body and headers. */
export interface Failure {
  code: ErrorCode;
  /** The gateway's own words if there are any. */
  message: string;
  /** The gateway's own code, as it came. */
  nativeCode?: string;
  requestId?: string;
  /** The least time to wait before another try, ms. */
  retryAfterMs?: number;
}

/** What the answer to a paid call proves (design 5), whatever it was that was paid for. */
export type SubmitVerdict =
  | { kind: 'accepted'; handle: string; nativeStatus?: string; warning?: string }
  /** Definitely refused: nothing was accepted, nothing is charged. */
  | { kind: 'rejected'; failure: Failure }
  /** Definitely not handled (429, 503, B's RequestLimitExceeded): may be tried again. */
  | { kind: 'unavailable'; failure: Failure }
  /** The task may exist; `handle` if the response contains a task id. */
  | { kind: 'unknown'; failure: Failure; handle?: string };

/** A JSON body's content type, for every area but speech. */
export const jsonHeaders: Record<string, string> = { 'content-type': 'application/json' };

/** Any JSON value as a request body. */
export function jsonBody(value: Json): string {
  return JSON.stringify(value);
}

/**
 * True for a host, as the URL parser spells it, that is this machine and nothing else: `localhost`, 127.0.0.0/8
 * and `[::1]`. A name such as `127.example.com` is not, and no other name is asked of DNS.
 */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}
