import type { Command } from 'commander';
import type { Run } from '../action.ts';
import { unknownCommand } from '../usage.ts';
import { registerBudgets } from './budgets.ts';
import { registerExitCodes } from './exit-codes.ts';

/** `mgw help [COMMAND...]`: the help of a command at any depth; `mgw help exit-codes` and the like print a topic. */
export function registerHelp(root: Command, run: Run): void {
  const help = root
    .command('help')
    .description('help on a command or a topic')
    .argument('[command...]', 'the command, such as: video c submit')
    .addHelpText('after', '\nExamples:\n  $ mgw help video c submit\n  $ mgw help exit-codes')
    .action((path: string[]) => named(root, path).help());
  registerBudgets(help, run);
  registerExitCodes(help, run);
}

function named(command: Command, [name, ...rest]: string[]): Command {
  if (name === undefined) return command;
  const found = command.commands.find((one) => one.name() === name || one.aliases().includes(name));
  if (found === undefined) throw unknownCommand(command, name);
  return named(found, rest);
}
