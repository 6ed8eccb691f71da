import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { list } from '../../command-tree.ts';

/** `mgw sandbox start|exec|bill|reset|faults`: the stand-in gateway, offline and free of charge. */
export function registerSandbox(sandbox: Command, run: Run): void {
  list(sandbox, run, {
    start: {
      about: 'serve the sandbox on loopback until Ctrl-C; prints what to export',
      load: async () => (await import('./start.ts')).registerStart,
    },
    exec: {
      about: "run a script against a sandbox of its own; its exit code is the script's",
      load: async () => (await import('./exec.ts')).registerExec,
    },
    bill: {
      about: 'what would have been charged',
      load: async () => (await import('./bill.ts')).registerBill,
    },
    reset: {
      about: 'forget the tasks, the bill and the jobs of the sandbox; real jobs are untouched',
      load: async () => (await import('./reset.ts')).registerReset,
    },
    faults: {
      about:
        'the faults that --fault takes: name, namexN (the first N times), name@P% (where in the answer; chaos: how likely)',
      load: async () => (await import('./faults.ts')).registerFaults,
    },
  });
}
