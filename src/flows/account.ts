import { createHmac } from 'node:crypto';

/** A label that tells accounts apart in the ledger and in `auth status`; nothing of the key can be read from it. */
export function accountOf(key: string): string {
  return createHmac('sha256', key).update('mgw account').digest('hex').slice(0, 16);
}
