import type { IncomingHttpHeaders } from 'node:http';
import type { AuthScheme, Caller } from './auth.ts';
import type { FaultHit, FaultName } from './fault-catalogue.ts';
import type { Area } from './models.ts';

/** What all clients of a state directory together may spend and do. What is absent has no limit. */
export interface Limits {
  /** Credits that there were before the first charge. */
  balance?: number;
  /** Video tasks under way; also streams of speech in one sandbox. */
  concurrency?: number;
  /** Paid calls in any 60 seconds. */
  perMinute?: number;
}

/** Why a paid call is refused; `retryAfter` in seconds. */
export type Exceeded =
  { limit: 'balance' } | { limit: 'concurrency' } | { limit: 'rate'; retryAfter: number };

/** The state that every route works on. Two gateways over one state directory know the same tasks. */
export interface Gateway {
  stateDir: string;
  /** Milliseconds since 1970. */
  now: () => number;
  /** How long one generation takes, in milliseconds. */
  paceMs: number;
  seed: number | undefined;
  limits: Limits;
  /** Voices beyond the sandbox's own. */
  voices: readonly string[];
  /** Removes the real key, which a prompt may contain by mistake, from what is kept of a task. */
  redact: (text: string) => string;
  /** Streams of speech that are being sent. */
  streams: { open: number };
  /** Origins of the gateway and of B's file host; known once both listen. */
  url: string;
  fileUrl: string;
  /**
   * Uses up one occurrence of a fault if the sandbox was started with it. `fits` may decline an occurrence by
   * its percentage, before it is counted.
   */
  take: (name: FaultName, fits?: (percent: number) => boolean) => FaultHit | undefined;
  /** What chance makes of a call, if the sandbox was started with `chaos`. */
  chance: (call: Chanced) => FaultHit | undefined;
}

/** One request, read whole. Its key is '' on routes without one. */
export interface Call extends Caller {
  method: string;
  /** The request's path, still percent-encoded. */
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
  requestId: string;
  gateway: Gateway;
}

/** What a request does, which decides the faults it can meet. */
export type RouteKind = 'submit' | 'poll' | 'download' | 'list' | 'tts' | 'responses';

/** One endpoint. The groups of `pattern` are handed to `handle`, percent-decoded. */
export interface Route {
  method: 'GET' | 'POST';
  pattern: RegExp;
  area: Area | 'models';
  /** A function if one path serves several operations (Protocol B). */
  kind: RouteKind | ((call: Call) => RouteKind);
  auth: AuthScheme;
  handle(call: Call, ...groups: string[]): Reply | Promise<Reply>;
}

/** An answer. A body that is iterated is streamed; any other gets a `Content-Length`. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** The call had no effect although its status is a success (Protocol B's errors). */
  refused?: true;
  /** Break the connection after this many bytes of the body; -1 breaks it before the status line. */
  cutAt?: number;
  /** Send this many bytes of the body and then nothing more, with the connection open. */
  stallAt?: number;
  /** Milliseconds to wait before answering. */
  delayMs?: number;
  /**
   * Called once when the answer is over: how many bytes of its body were handed to the network, and whether that
   * was all. Not called for a HEAD.
   */
  ended?: (bytes: number, whole: boolean) => void;
}

/** A refusal on the way: the router sends `reply` instead of what the handler would have made. */
export class RefusedCall extends Error {
  readonly reply: Reply;
  constructor(reply: Reply) {
    super(`Refused with HTTP ${reply.status}`);
    this.reply = reply;
  }
}

/** A JSON answer. */
export function json(status: number, value: unknown, headers: Record<string, string> = {}): Reply {
  return {
    status,
    headers: { 'Content-Type': 'application/json; charset=utf-8', ...headers },
    body: JSON.stringify(value),
  };
}

/** What a call is, as far as chance is concerned: `subject` is equal for calls about the same thing. */
export interface Chanced {
  kind: RouteKind;
  area: Route['area'];
  subject: string;
}
