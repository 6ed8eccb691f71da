import { a } from './a/protocol.ts';
import { b } from './b/protocol.ts';
import { c } from './c/protocol.ts';
import type { Protocol } from './protocol.ts';
import { usageError, type MgwError } from '../errors.ts';

/** The video protocols by name (specification 1). To add a protocol, add its folder and an entry here. */
export const protocols = { a, b, c } satisfies Record<string, Protocol>;

/** The name of a video protocol in this build. */
export type ProtocolName = keyof typeof protocols;

const byName: Readonly<Record<string, Protocol>> = protocols;

/** The names of the video protocols, in registry order. */
export const protocolNames: readonly string[] = Object.keys(byName);

/**
 * Returns the protocol with the given name; undefined if this build has none, for example for speech, or for a job of a
 * newer version of mgw.
 */
export function findProtocol(name: string): Protocol | undefined {
  return Object.hasOwn(byName, name) ? byName[name] : undefined;
}

/**
 * Returns the protocol with the given name.
 * @throws MgwError('usage') listing the protocols.
 */
export function protocolNamed(name: string): Protocol {
  const protocol = findProtocol(name);
  if (protocol === undefined) throw unknownProtocolError(name, protocolNames);
  return protocol;
}

/** Exit 2: `name` is none of the allowed names. */
export function unknownProtocolError(name: string, allowed: readonly string[]): MgwError {
  return usageError(`Unknown protocol ${JSON.stringify(name)}; allowed: ${allowed.join(', ')}.`);
}
