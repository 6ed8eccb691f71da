import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerBill } from './bill.ts';
import { registerExec } from './exec.ts';
import { registerFaults } from './faults.ts';
import { registerReset } from './reset.ts';
import { registerStart } from './start.ts';

/** `mgw sandbox start|exec|bill|reset|faults`: the stand-in gateway, offline and free of charge. */
export function registerSandbox(parent: Command, run: Run): void {
  const sandbox = parent.command('sandbox').description('a gateway to try and test with, offline and free');
  for (const register of [registerStart, registerExec, registerBill, registerReset, registerFaults])
    register(sandbox, run);
}
