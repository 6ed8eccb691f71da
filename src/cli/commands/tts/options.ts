import type { Command } from 'commander';
import { speechFlags } from '../../../speech/flags.ts';
import { budgetOptions, type BudgetOptions } from '../../budget-options.ts';
import { repeatable, single, wholeNumber } from '../../options.ts';
import {
  addOutputOptions,
  addRetriesOption,
  requestTimeoutOption,
  sidecarOption,
  type OutputOptions,
} from '../../wait-options.ts';

/** The options of `mgw tts` apart from those that are settings. */
export interface TtsOptions extends OutputOptions, BudgetOptions {
  file?: string;
  format?: string;
  sampleRate?: number;
  set?: string[];
  split?: boolean;
  pieceLength?: number;
  concurrency?: number;
  key?: string;
  new?: boolean;
  dryRun?: boolean;
  check?: boolean;
}

/** Adds the flags of `mgw tts`. */
export function addTtsOptions(command: Command): void {
  addSpeechOptions(command);
  command
    .addOption(repeatable('--set <path=value>', 'set a body field in native spelling: req_params.…'))
    .option(
      '--split',
      'speak a long text in pieces, and join them; run again, it pays for missing pieces only',
    )
    .addOption(
      single('--piece-length <characters>', 'the longest piece of --split (default 1000)', wholeNumber(1)),
    )
    .addOption(
      single('--concurrency <n>', 'how many pieces are spoken at once (default 3)', wholeNumber(1, 64)),
    )
    .addOption(single('--key <name>', 'name this job for ever: the same key never pays twice'))
    .option('--new', 'a deliberate second take of an earlier submission')
    .option('--dry-run', 'show the request that would be sent, and send nothing')
    .option('--no-check', 'skip the local checks')
    .addOption(
      single(
        '--timeout <duration>',
        'how long it may take in all, such as 90s or 20m (default 30m)',
      ).helpGroup('Waiting:'),
    )
    .addOption(requestTimeoutOption());
  addRetriesOption(command);
  for (const option of budgetOptions('this text')) command.addOption(option);
  addOutputOptions(command);
  command.addOption(sidecarOption());
}

function addSpeechOptions(command: Command): void {
  for (const { flags, description, parse } of speechFlags)
    command.addOption(single(flags, description, parse));
}
