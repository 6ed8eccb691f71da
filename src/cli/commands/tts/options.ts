import type { Command } from 'commander';
import { speechFlags } from '../../../speech/flags.ts';
import { budgetOptions, type BudgetOptions } from '../../budget-options.ts';
import { jobOptions, noCheckOption, requestOptions } from '../../job-options.ts';
import { single, wholeNumber } from '../../options.ts';
import {
  addOutputOptions,
  addRetriesOption,
  notifyOption,
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
  command.optionsGroup('Speech:');
  for (const { flags, description, parse } of speechFlags)
    command.addOption(single(flags, description, parse));
  command
    .addOption(single('--file <file>', 'the text is in this file; - reads it from stdin'))
    .option(
      '--split',
      'speak a long text in pieces, and join them; run again, it pays for missing pieces only',
    )
    .addOption(
      single('--piece-length <characters>', 'the longest piece of --split (default 1000)', wholeNumber(1)),
    )
    .addOption(
      single('--concurrency <n>', 'how many pieces are spoken at once (default 3)', wholeNumber(1, 64)),
    );
  addOutputOptions(command);
  command.addOption(sidecarOption());
  command
    .addOption(
      single(
        '--timeout <duration>',
        'how long it may take in all, such as 90s or 20m (default 30m)',
      ).helpGroup('Waiting:'),
    )
    .addOption(requestTimeoutOption(' (default 2m)'));
  addRetriesOption(command);
  command.addOption(notifyOption());
  const others = [
    ...jobOptions(),
    ...budgetOptions('this text'),
    ...requestOptions('req_params.speaker=NAME', noCheckOption()),
  ];
  for (const option of others) command.addOption(option);
}
