import { createHash } from 'node:crypto';
import type { Deadline } from '../clock.ts';
import type { MgwError } from '../errors.ts';
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

/** One paid submission, as a person or a script asked for it. */
export interface Order {
  protocol: JobKind;
  model?: string;
  /** The body that is sent, and that the record keeps. */
  body: Json;
  /**
   * The body as it was asked for, before a configured default or the listing completes it: what the fingerprint is
   * made of, so that neither a changed default nor a changed listing pays again. Default: `body`.
   */
  asked?: Json;
  /** The fingerprint of the job whose recorded body is sent again: the record does not keep the body as given. */
  fingerprint?: string;
  /** Sets apart jobs of one body, such as the pieces of a text that is spoken in pieces. */
  variant?: string;
  exchange: Exchange;
  /** Uploads the files that the body names, and returns the exchange with their URLs, which no record keeps. */
  upload?: (() => Promise<Exchange>) | undefined;
  auth: AuthScheme;
  /** Reads the answer; never throws. */
  read: (reply: Reply, body: unknown) => SubmitVerdict;
  /**
   * Makes the call and returns the part of the response that proves something: the whole exchange by default,
   * or only the head if the response is a stream that the caller reads.
   */
  send?: (client: GatewayClient, request: Exchange, options: CallOptions) => Promise<Reply>;
  /** Permanently names the job. */
  key?: string;
  /** Words to find the job by. */
  tags?: string[];
  /** A deliberate second take: earlier jobs of the same body are not looked at. */
  fresh: boolean;
  /** If given, a job in doubt under any key blocks the submission, which waits until then for a job that is being sent. */
  blockedByAnyDoubt?: Deadline;
  goal: Goal;
  /** True if the answer itself is the result: it cannot be fetched afterwards. */
  isOneShot?: boolean;
  /** Makes the error of a submission in doubt, if there is no task that could be adopted. */
  unknownError?: (job: Job, why: string, requestId?: string) => MgwError;
  /** When waiting ends; bounds the retries of a refused submission too. */
  deadline: Deadline;
  /** Runs before anything is paid for. Throws if the result could not be saved (exit 10). */
  beforeSending?: () => Promise<void>;
}

// A record stays readable at a glance: in a larger body (an image in Base64) long texts are named by their hash.
const largestRecordedBody = 256 * 1024;
const longestRecordedText = 16 * 1024;

/** The hash under which the same submission is found again, whatever API key it is made with (design 4). */
export function fingerprintOf(
  {
    protocol,
    body,
    asked = body,
    variant,
    fingerprint,
  }: Pick<Order, 'protocol' | 'body' | 'asked' | 'variant' | 'fingerprint'>,
  gateway: string,
): string {
  const parts = [
    gatewayName(gateway),
    protocol,
    canonicalJson(asked),
    ...(variant === undefined ? [] : [variant]),
  ];
  return fingerprint ?? createHash('sha256').update(parts.join('\n')).digest('hex');
}

/** True if two names of a gateway, as records have them, mean the same one. */
export function isSameGateway(one: string, other: string): boolean {
  return gatewayName(one) === gatewayName(other);
}

// Of the last one: each row of a batch asks for the same.
let lastNamed = { gateway: '', name: '' };

// A base URL with one name for loopback. The sandbox's constant name is not a URL, and is returned unchanged.
function gatewayName(gateway: string): string {
  if (lastNamed.gateway !== gateway) lastNamed = { gateway, name: nameOfGateway(gateway) };
  return lastNamed.name;
}

function nameOfGateway(gateway: string): string {
  if (!URL.canParse(gateway)) return gateway;
  const url = new URL(gateway);
  if (isLoopbackHost(url.hostname)) url.hostname = 'localhost';
  return url.href.replace(/\/$/, '');
}

/**
 * Returns the body as the ledger keeps it: without the API key, and of a large body only the hash of each long text, or of
 * the whole. `elided` if this is not the body that was sent, so that it cannot be sent again from the record.
 * @param redact takes the API key out of a text
 */
export function recordedBody(
  given: Json,
  redact: (text: string) => string = (text) => text,
): { request: Json; elided?: true } {
  const body = withTexts(given, redact);
  const text = canonicalJson(body);
  if (text !== canonicalJson(given)) return { ...recordedBody(body), elided: true };
  if (text.length <= largestRecordedBody) return { request: body };
  const shortened = withTexts(body, (value) => (value.length > longestRecordedText ? named(value) : value));
  const fits = canonicalJson(shortened).length <= largestRecordedBody;
  return { request: fits ? shortened : named(text), elided: true };
}

function withTexts(value: Json, change: (text: string) => Json): Json {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((each) => withTexts(each, change));
  if (!isObject(value)) return value;
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(
    members.map(([name, member]) => [nameAfter(change, name), withTexts(member as Json, change)]),
  );
}

function nameAfter(change: (text: string) => Json, name: string): string {
  const changed = change(name);
  return typeof changed === 'string' ? changed : name;
}

function named(text: string): JsonObject {
  return { sha256: createHash('sha256').update(text).digest('hex'), bytes: Buffer.byteLength(text) };
}
