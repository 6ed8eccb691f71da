import type { ErrorCode } from './errors.ts';
import type { Json, JsonObject } from './json.ts';

/** The header that contains the key, and the scheme before the key: `Bearer`, or empty for none (specification 5). */
export interface AuthScheme {
  header: string;
  scheme: string;
}

/** `Authorization: Bearer <key>`, for Protocols A and B, the model list and Responses (specification 5). */
export const bearer: AuthScheme = { header: 'Authorization', scheme: 'Bearer' };

/** `X-Api-Key: <key>` without a scheme, for speech (specification 5). */
export const xApiKey: AuthScheme = { header: 'X-Api-Key', scheme: '' };

/** A request to the gateway, without the key. The client adds the key. */
export interface Exchange {
  method: 'GET' | 'POST';
  /** The absolute path below the base URL, percent-encoded, including any query. */
  path: string;
  headers: Record<string, string>;
  /** The serialized body. */
  body?: string;
}

/** A request to any server. For the gateway, see {@link Exchange}. */
export interface HttpRequest extends Omit<Exchange, 'method' | 'body'> {
  method: string;
  body?: string | Uint8Array | undefined;
}

/** A response to a request. It may be incomplete. */
export interface Reply {
  status: number;
  /** Header names are in lower case. The values of a repeated header are joined by `, `. */
  headers: Record<string, string>;
  /** The part of the body that arrived, decoded as UTF-8 and limited to the maximum length. */
  text: string;
  /** False if a reset, an early end, a timeout or the maximum length made the body incomplete. */
  complete: boolean;
  /** Media strings that were decoded to files as the body streamed, in order of arrival. */
  spooled?: SpooledMedia[];
}

/**
 * A long Base64 string in a response, decoded to a file as it arrived. In
 * `Reply.text`, `mgw-spool:<index>` replaces it.
 */
export interface SpooledMedia {
  /** The file with the decoded bytes; undefined if the bytes were only counted. */
  path?: string;
  bytes: number;
  /** The reason why the string is not strict Base64; absent if it is. */
  fault?: string;
}

/** A refusal or failure reported by the gateway, as read from the response's status, body and headers. */
export interface Failure {
  code: ErrorCode;
  /** The gateway's message, if any. */
  message: string;
  /** The gateway's own error code, unchanged. */
  nativeCode?: string;
  requestId?: string;
  /** The minimum delay before a retry, in ms. */
  retryAfterMs?: number;
}

/** A model from the model list (specification 2.7). Its strings come from the gateway and are escaped when printed. */
export interface Model {
  /** The model's name, exactly as requests must send it. */
  id: string;
  /** The video protocols listed in the entry, in alphabetical order. */
  protocols: string[];
  /** The values of `supported_endpoint_types`, `protocol` and similar members, unchanged. */
  endpoints: string[];
  /** The values that `ModelVersion` accepts in Protocol B; empty for other models. */
  model_versions: string[];
  owned_by?: string;
  /** The model's creation time, in seconds since 1970. */
  created?: number;
  /** The model's entry in the model list, unchanged. The first entry if several entries have the same id. */
  raw: JsonObject;
}

/** What the response to a paid call proves (design 5). */
export type SubmitVerdict =
  | { kind: 'accepted'; handle: string; nativeStatus?: string; warning?: string }
  /** Definitely refused: nothing was accepted or charged. */
  | { kind: 'rejected'; failure: Failure }
  /** Definitely not handled (429, 503 or Protocol B's RequestLimitExceeded), so the call may be retried. */
  | { kind: 'unavailable'; failure: Failure }
  /** The task may exist. `handle` is set if the response contains a task id. */
  | { kind: 'unknown'; failure: Failure; handle?: string };

/** The content type of a JSON body, for all protocols except speech. */
export const jsonHeaders: Record<string, string> = { 'content-type': 'application/json' };

/** Serializes a JSON value as a request body. */
export function jsonBody(value: Json): string {
  return JSON.stringify(value);
}

/**
 * Whether a host, as spelled by the URL parser, is the local machine: `localhost`,
 * 127.0.0.0/8 or `[::1]`. Makes no DNS lookup.
 */
export function isLoopbackHost(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}
