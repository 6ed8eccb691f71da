import { a } from './a/protocol.ts';
import { b } from './b/protocol.ts';
import { c } from './c/protocol.ts';
import type { Protocol } from './protocol.ts';

/** The video protocols by name (specification 1). A protocol is added by its folder and its name here. */
export const protocols = { a, b, c } satisfies Record<string, Protocol>;

/** The name of a video protocol of this build. */
export type ProtocolName = keyof typeof protocols;
