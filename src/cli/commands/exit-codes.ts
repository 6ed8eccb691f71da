import type { Command } from 'commander';
import { exitCodes } from '../../errors.ts';
import { table } from '../output/table.ts';
import type { Run } from '../action.ts';

const meanings: [code: number, name: string, meaning: string, charged: string, then: string][] = [
  [exitCodes.ok, 'ok', 'done; for submit without waiting: accepted and recorded', '-', 'go on'],
  [exitCodes.internal, 'internal', 'a bug', 'see error', 'report it'],
  [
    exitCodes.usage,
    'usage',
    'bad flag, input, config or failed local check; nothing sent',
    'no',
    'correct it',
  ],
  [exitCodes.auth, 'auth', 'key refused; model or voice not authorised', 'no', 'correct the key'],
  [exitCodes.rejected, 'rejected', 'the gateway refused the request; nothing accepted', 'no', 'change it'],
  [exitCodes.failed, 'failed', 'accepted, and the generation failed', 'maybe', 'look, decide'],
  [
    exitCodes.unavailable,
    'unavailable',
    'never sent, or rate-limited, or reads kept failing',
    'no',
    'run again: safe',
  ],
  [
    exitCodes.unknown,
    'unknown',
    'the submission may have been accepted',
    'maybe',
    'not resubmit; mgw jobs resolve',
  ],
  [exitCodes.pending, 'pending', 'accepted, not finished when the wait ended', 'yes', 'run again: resumes'],
  [exitCodes.incomplete, 'incomplete', 'finished, but the result is gone, broken or unproven', 'yes', 'look'],
  [exitCodes.local, 'local', 'disk full, output exists, state not writable', 'no', 'correct it'],
  [exitCodes.partial, 'partial', 'several jobs: some are not ok', '-', 'read the JSON'],
  [
    exitCodes.budget,
    'budget',
    'a budget would be exceeded, or no price is known under one',
    'no',
    'raise it, or leave it',
  ],
  [exitCodes.interrupted, 'interrupted', 'SIGINT: detached; the job goes on', '-', 'run again: resumes'],
  [exitCodes.terminated, 'terminated', 'SIGTERM: detached; the job goes on', '-', 'run again: resumes'],
];

/** `mgw help exit-codes`: the table of design 2. */
export function registerExitCodes(help: Command, run: Run): void {
  const command = help
    .command('exit-codes')
    .description('what the exit codes mean')
    .action(() =>
      run(command, () => Promise.resolve({ json: { exit_codes: codes() }, text: exitCodeTable() })),
    );
}

function codes(): unknown[] {
  return meanings.map(([code, name, meaning, charged, then]) => ({ code, name, meaning, charged, then }));
}

function exitCodeTable(): string {
  const rows = meanings.map(([code, ...rest]) => [String(code), ...rest]);
  return table(['code', 'name', 'meaning', 'charged', 'a script should'], rows);
}
