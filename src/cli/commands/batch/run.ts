import type { Command } from 'commander';
import { everyRow } from '../../../batch/choice.ts';
import type { Run } from '../../command-tree.ts';
import { execute } from './execute.ts';
import { addRunOptions } from './options.ts';

const examples = `
Examples:
  $ mgw batch run clips.csv
  $ mgw batch run clips.csv --budget 50 -o clips/{id}.{ext}
  $ mgw batch run clips.csv -o clips/{id}.{ext} --concurrency 8 --results results.jsonl`;

/** `mgw batch run FILE`: submits, waits and saves. Run again, it continues, and pays for no row twice. */
export function registerRunBatch(command: Command, run: Run): void {
  command.argument('<file>', 'the rows: .csv, .jsonl or .yaml');
  addRunOptions(command);
  command
    .addHelpText('after', examples)
    .action((file: string) => run(command, (context) => execute(context, file, command.opts(), everyRow)));
}
