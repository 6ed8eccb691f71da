import { Option, type Command } from 'commander';
import { repeatable, single } from '../../options.ts';

/** What tells a batch: its file, its name, and where its files go. */
export interface BatchOptions {
  /** Templates: `clips/{id}.{ext}`. */
  output?: string;
  default?: string[];
  name?: string;
  force?: boolean;
}

/** Adds the flags by which a batch is told. */
export function addBatchOptions(command: Command): void {
  command
    .addOption(
      repeatable(
        '-d, --default <name=value>',
        'a field of every row that does not give it: -d model=vendor-h3',
      ),
    )
    .addOption(single('--name <name>', "names the batch (default: the file's, without its ending)"))
    .addOption(
      single(
        '-o, --output <template>',
        'where files go, such as clips/{id}.{ext}; also {slug} {index} {name} {model} {protocol} {seed} {job} {n}',
      ).helpGroup('Output:'),
    )
    .addOption(new Option('--force', 'overwrite files that are not of this batch').helpGroup('Output:'));
}
