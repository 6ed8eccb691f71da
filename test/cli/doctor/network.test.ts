import { expect, it } from 'vitest';
import { connectionHintFor } from '../../../src/cli/doctor/network.ts';
import { TransportError } from '../../../src/http/transport-error.ts';

it.each([
  ['CERT_HAS_EXPIRED', /date, 2026-11-29, is correct/],
  ['CERT_NOT_YET_VALID', /date, 2026-11-29, is correct/],
  ['ERR_TLS_CERT_ALTNAME_INVALID', /check the base URL/],
  ['SELF_SIGNED_CERT_IN_CHAIN', /NODE_EXTRA_CA_CERTS/],
  ['ECONNREFUSED', /the firewall/],
])('after the connection error %s, doctor says what to check', (code, hint) => {
  const cause = Object.assign(new Error('no'), { code });
  const error = TransportError.unsent(cause, new URL('https://gateway.test'));
  expect(connectionHintFor(error, Date.parse('2026-11-29T12:00:00Z'))).toMatch(hint);
});
