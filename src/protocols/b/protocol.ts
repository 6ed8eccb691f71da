import { bearer } from '../../exchange.ts';
import { textAt } from '../../json.ts';
import type { Protocol } from '../protocol.ts';
import { advise, check, normalise } from './checks.ts';
import { flags } from './flags.ts';
import { quantityOf } from './quantity.ts';
import { complete, needsListing } from './versions.ts';
import { query, readQuery, readSubmission, submission } from './wire.ts';

/** Protocol B, the cloud-action style at the root path (specification 2.3, 2.4, 3.2, 4.2). */
export const b: Protocol = {
  name: 'b',
  auth: bearer,
  flags,
  needsListing,
  complete,
  normalise,
  check,
  advise,
  quantityOf,
  modelOf: (body) => textAt(body, 'ModelName'),
  submission,
  readSubmission,
  query,
  readQuery,
  // The result is a plain file on another host: nothing there tells that it will come later.
  notReady: () => false,
};
