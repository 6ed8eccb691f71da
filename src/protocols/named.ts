import { usageError } from '../errors.ts';
import type { Protocol } from './protocol.ts';
import { protocols } from './registry.ts';

const byName: Readonly<Record<string, Protocol>> = protocols;

/** The names of the video protocols, in the order of the registry. */
export const protocolNames: readonly string[] = Object.keys(byName);

/** Finds a protocol by name; undefined if there is none, as for speech or a job of a newer mgw. */
export function findProtocol(name: string): Protocol | undefined {
  return Object.hasOwn(byName, name) ? byName[name] : undefined;
}

/** Returns the protocol of a name. @throws MgwError('usage') naming the protocols that exist. */
export function protocolNamed(name: string): Protocol {
  const protocol = findProtocol(name);
  if (protocol === undefined)
    throw usageError(`Unknown protocol ${JSON.stringify(name)}; allowed: ${protocolNames.join(', ')}.`);
  return protocol;
}
