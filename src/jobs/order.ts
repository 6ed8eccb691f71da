import type { AuthScheme, Exchange, Reply } from '../exchange.ts';
import type { Ask, JobKind } from '../job.ts';
import { canonicalJson, type Json } from '../json.ts';
import { createHash } from 'node:crypto';
import type { ReplyVerdict } from './settle.ts';

/** One paid submission, as a person or a script asked for it. */
export interface Order {
  protocol: JobKind;
  model?: string;
  /** The body in its canonical form: what the fingerprint is made of, and what the record keeps. */
  body: Json;
  exchange: Exchange;
  auth: AuthScheme;
  /** Reads the answer; never throws. */
  read: (reply: Reply, body: unknown) => ReplyVerdict;
  /** Names the job for ever. */
  key?: string;
  /** A deliberate second take: earlier jobs of the same body are not looked at. */
  fresh: boolean;
  ask: Ask;
  /** When waiting ends, ms since 1970; bounds the retries of a refused submission too. */
  deadline: number;
}

// A record stays readable at a glance; larger bodies (an image in Base64) are named by their hash.
const largestRecordedBody = 256 * 1024;

/** The hash under which the same submission is found again (design 4). */
export function fingerprintOf(order: Order, gateway: string, account: string): string {
  const parts = [gateway, account, order.protocol, canonicalJson(order.body)];
  return createHash('sha256').update(parts.join('\n')).digest('hex');
}

/** The body as the ledger keeps it; `elided` where it was too large and only its hash is kept. */
export function recordedBody(body: Json): { request: Json; elided?: true } {
  const text = canonicalJson(body);
  if (text.length <= largestRecordedBody) return { request: body };
  return {
    request: { sha256: createHash('sha256').update(text).digest('hex'), bytes: text.length },
    elided: true,
  };
}
