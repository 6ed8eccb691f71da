import { a } from './a/protocol.ts';
import { b } from './b/protocol.ts';
import { c } from './c/protocol.ts';
import type { Protocol } from './protocol.ts';
import { usageError } from '../errors.ts';

/** The video protocols by name (specification 1). A protocol is added by its folder and its name here. */
export const protocols = { a, b, c } satisfies Record<string, Protocol>;

/** The name of a video protocol of this build. */
export type ProtocolName = keyof typeof protocols;

const byName: Readonly<Record<string, Protocol>> = protocols;

/** The names of the video protocols, in the order of the registry. */
export const protocolNames: readonly string[] = Object.keys(byName);

/** Finds a protocol by name; undefined if there is none, as for speech or a job of a newer mgw. */
export function findProtocol(name: string): Protocol | undefined {
  return Object.hasOwn(byName, name) ? byName[name] : undefined;
}

/** Returns the protocol of a name. @throws MgwError('usage') listing the protocols. */
export function protocolNamed(name: string): Protocol {
  const protocol = findProtocol(name);
  if (protocol === undefined)
    throw usageError(`Unknown protocol ${JSON.stringify(name)}; allowed: ${protocolNames.join(', ')}.`);
  return protocol;
}
