import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerLogin } from './login.ts';
import { registerLogout } from './logout.ts';
import { registerStatus } from './status.ts';

/** `mgw auth login|status|logout`: which key is used, and where. No flag takes a key: a process list shows flags. */
export function registerAuth(parent: Command, run: Run): void {
  const group = parent.command('auth').description('keep the API key, look where it comes from, remove it');
  registerLogin(group, run);
  registerStatus(group, run);
  registerLogout(group, run);
}
