import type { Command } from 'commander';
import { list, type Run } from '../../command-tree.ts';

/**
 * `mgw auth login|status|logout`: which key is used, and for which gateway. No flag takes a key, since a process list
 * shows flags.
 */
export function registerAuth(auth: Command, run: Run): void {
  list(auth, run, {
    login: {
      about: "keep a gateway's address and an API key that it accepts",
      load: async () => (await import('./login.ts')).registerLogin,
    },
    status: {
      about: 'show which gateway and which key are in use, and whether the key is accepted',
      load: async () => (await import('./status.ts')).registerStatus,
    },
    logout: {
      about: 'remove the API key from the profile',
      load: async () => (await import('./login.ts')).registerLogout,
    },
  });
}
