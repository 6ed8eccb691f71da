import { join } from 'node:path';
import type { Settings } from '../config/resolve.ts';
import { parseStateUrl, type StateUrl } from '../state-url.ts';

/** Where the ledger of this machine is: the sandbox has one of its own, so that play money never mixes with real. */
export function ledgerFolder(settings: Settings): string {
  return settings.sandbox.value ? join(sandboxFolder(settings), 'ledger') : settings.stateDir.value;
}

/** The ledger that is shared with other machines, undefined for that of a folder; the sandbox has one of its own there too. */
export function sharedLedger({ state: { value }, sandbox }: Settings): StateUrl | undefined {
  if (value === undefined) return undefined;
  const url = parseStateUrl(value);
  return sandbox.value ? { ...url, schema: `${url.schema}_sandbox` } : url;
}

/** Where the sandbox keeps its tasks, its bill and its ledger. */
export function sandboxFolder(settings: Settings): string {
  return join(settings.stateDir.value, 'sandbox');
}
