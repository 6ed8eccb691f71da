import { protocols as shipped } from '../../../src/protocols/registry.ts';
import { d } from './protocol.ts';

/** The registry of a build that has the toy protocol as well: the one line that adding a protocol takes. */
export const protocols = { ...shipped, d };
