import type { ErrorCode } from './errors.ts';
import type { Json, JsonObject } from './json.ts';

/** The header that contains the key, and the scheme before the key (`Bearer`, or empty for none). Specification 5. */
export interface AuthScheme {
  header: string;
  scheme: string;
}

/** `Authorization: Bearer <key>`, for Protocols A and B, the model list and Responses (specification 5). */
export const bearer: AuthScheme = { header: 'Authorization', scheme: 'Bearer' };

/** `X-Api-Key: <key>` without a scheme, for speech (specification 5). */
export const xApiKey: AuthScheme = { header: 'X-Api-Key', scheme: '' };

/** One request to the gateway, without the key; the client adds it. */
export interface Exchange {
  method: 'GET' | 'POST';
  /** The absolute path below the base URL, percent-encoded, with its query if any. */
  path: string;
  headers: Record<string, string>;
  /** The serialised body. */
  body?: string;
}

/** A request to any server, like {@link Exchange} for the gateway. */
export interface HttpRequest extends Omit<Exchange, 'method' | 'body'> {
  method: string;
  body?: string | Uint8Array | undefined;
}

/** A response, possibly incomplete. */
export interface Reply {
  status: number;
  /** Names are in lower case. The values of a repeated header are joined by `, `. */
  headers: Record<string, string>;
  /** The body decoded as UTF-8, as far as it arrived, up to the maximum length. */
  text: string;
  /** False if the body is incomplete because of a reset, an early end, a timeout, or the maximum length. */
  complete: boolean;
  /** Media strings that were decoded to files while the body streamed, in order of arrival. */
  spooled?: SpooledMedia[];
}

/**
 * A long Base64 string of a response that was decoded to a file while it arrived. `Reply.text` has the string
 * `mgw-spool:<index>` in its place.
 */
export interface SpooledMedia {
  /** The file with the decoded bytes; undefined if they were only counted. */
  path?: string;
  bytes: number;
  /** The reason why the string was not strict Base64; absent if it was. */
  fault?: string;
}

/** The meaning of a gateway's refusal or failure, read from its status, body and headers. */
export interface Failure {
  code: ErrorCode;
  /** The gateway's message, if any. */
  message: string;
  /** The gateway's own code, unchanged. */
  nativeCode?: string;
  requestId?: string;
  /** The minimum delay before a retry, ms. */
  retryAfterMs?: number;
}

/**
 * A model from the model list (specification 2.7). Its strings come from the gateway, and are escaped when they are
 * printed.
 */
export interface Model {
  /** The name to use in requests, unchanged. */
  id: string;
  /** The video protocols that the entry lists, in alphabetical order. */
  protocols: string[];
  /** The values of the members `supported_endpoint_types`, `protocol` and similar ones, unchanged. */
  endpoints: string[];
  /** The values that Protocol B's `ModelVersion` can have; empty for other models. */
  model_versions: string[];
  owned_by?: string;
  /** The time of creation, in seconds since 1970. */
  created?: number;
  /** The entry, unchanged. If several entries have the same id, the first of them. */
  raw: JsonObject;
}

/** What the response to a paid call proves (design 5). */
export type SubmitVerdict =
  | { kind: 'accepted'; handle: string; nativeStatus?: string; warning?: string }
  /** Definitely refused: nothing was accepted, nothing is charged. */
  | { kind: 'rejected'; failure: Failure }
  /** Definitely not handled (429, 503, B's RequestLimitExceeded): the call may be tried again. */
  | { kind: 'unavailable'; failure: Failure }
  /** The task may exist; `handle` if the response contains a task id. */
  | { kind: 'unknown'; failure: Failure; handle?: string };

/** The content type of a JSON body, for every area except speech. */
export const jsonHeaders: Record<string, string> = { 'content-type': 'application/json' };

/** Serialises a JSON value as a request body. */
export function jsonBody(value: Json): string {
  return JSON.stringify(value);
}

/**
 * Whether a host, in the URL parser's spelling, is this machine: `localhost`, 127.0.0.0/8 or `[::1]`. Makes no DNS
 * lookup.
 */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}
