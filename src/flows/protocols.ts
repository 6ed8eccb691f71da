import type { Settings } from '../config/resolve.ts';
import type { Protocol } from '../protocols/protocol.ts';

/** A protocol as the settings have it: the header of Protocol C's key is one of them (specification 5.5). */
export function configured(protocol: Protocol, settings: Settings): Protocol {
  return protocol.name === 'c' ? { ...protocol, auth: settings.cAuth.value } : protocol;
}
