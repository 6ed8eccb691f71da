import type { BillLine } from './bill.ts';
import { fingerprint, subjectOf } from './bill.ts';
import { limitExceeded } from './envelopes.ts';
import type { Call } from './exchange.ts';
import { Refused } from './exchange.ts';
import { chargeWithin } from './limits.ts';

/** What is charged for: `body` as it came, and the prompt, text or input in it. */
export interface Service extends Omit<BillLine, 'fingerprint' | 'subject' | 'key'> {
  body: unknown;
  text: string;
}

/**
 * Charges the key of a call for a service. `refundAt` (milliseconds since 1970) is for what is known to fail. Throws
 * Refused, and charges nothing, where a limit of the account forbids it.
 */
export function chargeFor(call: Call, { body, text, ...line }: Service, refundAt?: number): void {
  const { gateway, key, requestId } = call;
  const hashes = { fingerprint: fingerprint({ model: line.model, body }), ...subjectOf(text) };
  const exceeded = chargeWithin(gateway.stateDir, gateway.limits, { ...line, ...hashes, key }, refundAt);
  if (exceeded !== undefined) throw new Refused(limitExceeded(line.area, exceeded, requestId));
}
