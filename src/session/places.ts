import { join } from 'node:path';
import type { Settings } from '../config/resolve.ts';

/** Where the ledger is: the sandbox has one of its own, so that play money never mixes with real. */
export function ledgerFolder(settings: Settings): string {
  return settings.sandbox.value ? join(sandboxFolder(settings), 'ledger') : settings.stateDir.value;
}

/** Where the sandbox keeps its tasks, its bill and its ledger. */
export function sandboxFolder(settings: Settings): string {
  return join(settings.stateDir.value, 'sandbox');
}
