import { createHash } from 'node:crypto';
import type { Deadline } from '../clock.ts';
import { type MgwError, usageError } from '../errors.ts';
import {
  type AuthScheme,
  type Exchange,
  isLoopbackHost,
  type Reply,
  type SubmitVerdict,
} from '../exchange.ts';
import type { CallOptions, GatewayClient } from '../http/client.ts';
import type { Goal, Job, JobKind } from '../job.ts';
import { canonicalJson, isObject, type Json, type JsonObject } from '../json.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { PricedOrder } from '../payment/reserve.ts';
import type { PayDeps } from '../payment/pay-once.ts';

/** A paid submission, as the user ordered it. */
export interface Order {
  protocol: JobKind;
  model?: string;
  /** The body to send and record. */
  body: Json;
  /**
   * The body that the user specified, before it is completed from configured defaults or the model list. The
   * fingerprint is computed from it, so that a changed default or model list does not cause another payment. Default:
   * `body`.
   */
  userBody?: Json;
  /**
   * The fingerprint of the job whose recorded body is sent again, because the record does not contain the user's
   * original body.
   */
  fingerprint?: string;
  /**
   * Distinguishes jobs with the same body, such as pieces of long text, so that none of them continues another. It is
   * not part of the fingerprint, because a job in doubt blocks every submission of its body.
   */
  variant?: string | undefined;
  exchange: Exchange;
  /** The name of the path that `exchange` uses, if the user chose one. */
  endpoint?: string | undefined;
  /** Uploads the body's files and returns the exchange with their URLs. The URLs are never recorded. */
  upload?: (() => Promise<Exchange>) | undefined;
  auth: AuthScheme;
  /** Interprets the response. Never throws. */
  read: (reply: Reply, body: unknown) => SubmitVerdict;
  /**
   * Makes the call and returns the part of the response that determines the verdict. Default: the whole response. For a
   * stream that the caller reads, it is only the head.
   */
  send?: (client: GatewayClient, request: Exchange, options: CallOptions) => Promise<Reply>;
  /** A key that permanently names the job. */
  key?: string;
  /** Words for finding the job later. */
  tags?: string[];
  /** Whether to pay for a new take, regardless of earlier jobs with the same body. */
  fresh: boolean;
  /**
   * If set, a job in doubt under any key blocks the submission. The submission waits until this deadline for a job that
   * is being sent.
   */
  blockedByAnyDoubt?: Deadline;
  goal: Goal;
  /** Whether the response itself is the result, which cannot be fetched later. */
  isOneShot?: boolean;
  /** Creates the error for a submission in doubt that has no task to adopt. */
  unknownError?: (job: Job, reason: string, requestId?: string) => MgwError;
  /** The deadline for waiting and for retries of a refused submission. */
  deadline: Deadline;
  /** Runs before anything is paid for. Throws if an input is missing or the result could not be saved. */
  checkBeforePaying?: () => Promise<void>;
}

// In a body above this size, long strings (such as a Base64 image) are recorded as hashes, so that the record remains
// readable.
const maxRecordedBody = 256 * 1024;
const maxRecordedText = 16 * 1024;

/** Returns the hash that identifies a submission, regardless of the API key (design 4). */
export function fingerprintOf(
  {
    protocol,
    body,
    userBody = body,
    fingerprint,
  }: Pick<Order, 'protocol' | 'body' | 'userBody' | 'fingerprint'>,
  gateway: string,
): string {
  const parts = [gatewayName(gateway), protocol, canonicalJson(userBody)];
  return fingerprint ?? createHash('sha256').update(parts.join('\n')).digest('hex');
}

/** Whether two gateway names from records refer to the same gateway. */
export function isSameGateway(one: string, other: string): boolean {
  return gatewayName(one) === gatewayName(other);
}

// Caches the last result, because all rows of a batch have the same gateway.
let lastGateway = { gateway: '', name: '' };

// Returns a base URL with one name for all loopback hosts. The sandbox's name is not a URL and is returned unchanged.
function gatewayName(gateway: string): string {
  if (lastGateway.gateway !== gateway) lastGateway = { gateway, name: nameOfGateway(gateway) };
  return lastGateway.name;
}

function nameOfGateway(gateway: string): string {
  if (!URL.canParse(gateway)) return gateway;
  const url = new URL(gateway);
  if (isLoopbackHost(url.hostname)) url.hostname = 'localhost';
  return url.href.replace(/\/$/, '');
}

/**
 * Returns the body to record, without the API key. In a large body, replaces each long string with its hash. If the
 * body is still too large, replaces the whole body with its hash. `elided` is set if the recorded body differs from the
 * sent one and therefore cannot be sent again.
 * @param redact removes the API key from a string
 */
export function recordedBody(
  original: Json,
  redact: (text: string) => string = (text) => text,
): { request: Json; elided?: true } {
  const body = mapStrings(original, redact);
  const text = canonicalJson(body);
  if (text !== canonicalJson(original)) return { ...recordedBody(body), elided: true };
  if (text.length <= maxRecordedBody) return { request: body };
  const shortened = mapStrings(body, (value) => (value.length > maxRecordedText ? hashedText(value) : value));
  const fits = canonicalJson(shortened).length <= maxRecordedBody;
  return { request: fits ? shortened : hashedText(text), elided: true };
}

function mapStrings(value: Json, change: (text: string) => Json): Json {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((each) => mapStrings(each, change));
  if (!isObject(value)) return value;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(
    members.map(([name, member]) => [changedName(change, name), mapStrings(member as Json, change)]),
  );
}

function changedName(change: (text: string) => Json, name: string): string {
  const changed = change(name);
  return typeof changed === 'string' ? changed : name;
}

function hashedText(text: string): JsonObject {
  return { sha256: createHash('sha256').update(text).digest('hex'), bytes: Buffer.byteLength(text) };
}

/** The dependencies of every action on a job. */
export interface JobDeps extends PayDeps {
  ledger: Ledger;
  /** Returns the maximum cost of a submission, if it is known. */
  priceOf: (order: Pick<Order, 'protocol' | 'model' | 'body'>) => Promise<PricedOrder>;
  /** The value of `base_url` in records: the base URL, or the sandbox's constant name. */
  gateway: string;
  /** Keyed hash of the API key (design 4). */
  account: string;
  /** Removes the key from a string before it is recorded. */
  redact: (text: string) => string;
  userAgent: string;
  /** The command's start time, in ms since 1970. Default: the time of the first search for the job. */
  startedAt?: number | undefined;
  /**
   * Called when this process starts to wait for the live process that began the job first. Set only if several
   * processes share the slots for submissions: a waiting process releases its slot.
   */
  onWaitForOther?: () => void;
  /**
   * Called with the function that records the end of a run whose error is about a charge. That function's argument is
   * whether the caller received the error. If absent, the caller is assumed to receive every error.
   */
  onFailedRun?: (record: (isReported: boolean) => Promise<void>) => void;
}

/** Default timeout of one query, in ms. */
export const queryTimeoutMs = 30_000;

/**
 * Refuses a name that contains the API key, because it would be stored in records and file names.
 * @param label the flag or field that contains the name
 * @throws MgwError('usage') that does not quote the name.
 */
export function checkNoSecret(
  label: string,
  name: string | undefined,
  redact: (text: string) => string,
): void {
  if (name === undefined || redact(name) === name) return;
  throw usageError(
    `${label} contains the API key, which would be recorded. Nothing was sent. Choose another value.`,
  );
}

/** Returns dependencies that call `markPaying` immediately before a payment, but not for a call that resumes a job. */
export function withPaymentMark<Deps extends Pick<JobDeps, 'priceOf'>>(
  deps: Deps,
  markPaying: () => void,
): Deps {
  const priceOf: JobDeps['priceOf'] = (order) => {
    markPaying();
    return deps.priceOf(order);
  };
  return { ...deps, priceOf };
}
