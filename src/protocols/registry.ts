import type { ProtocolName } from '../job.ts';
import { a } from './a/protocol.ts';
import { b } from './b/protocol.ts';
import { c } from './c/protocol.ts';
import type { Protocol } from './protocol.ts';

/** The video protocols by name (specification 1). */
export const protocols = { a, b, c } satisfies Record<ProtocolName, Protocol>;
