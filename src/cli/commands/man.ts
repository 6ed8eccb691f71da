import type { Command, Option } from 'commander';
import { loadAll, rootOf, type Run, topics, typedName } from '../command-tree.ts';
import { version } from '../../installation.ts';

/** `mgw __man`: prints the man page, generated from the command tree. The build saves it to a file. */
export function registerMan(command: Command, run: Run): void {
  command.action(() =>
    run(command, async () => {
      const root = rootOf(command);
      await loadAll(root);
      return { json: {}, text: manPage(root) };
    }),
  );
}

function manPage(root: Command): string {
  const lines = [
    `.TH MGW 1 "" "mgw ${version}" "User Commands"`,
    '.SH NAME',
    'mgw \\- video and speech jobs on a media generation gateway',
    '.SH SYNOPSIS',
    '.B mgw',
    '.I COMMAND',
    '[\\fIFLAG\\fR...]',
    '.SH DESCRIPTION',
    escaped(root.description()),
    '.SH GLOBAL OPTIONS',
    ...optionsOf(root),
    '.SH COMMANDS',
    ...below(root).flatMap(commandText),
    '.SH SEE ALSO',
    escaped(`mgw help TOPIC, where TOPIC is one of ${topics.map(({ name }) => name).join(', ')}.`),
  ];
  return lines.join('\n');
}

function below(command: Command): Command[] {
  const children = command.createHelp().visibleCommands(command);
  // The man page does not list the topics of `help`.
  return children.flatMap((child) => [child, ...(child.name() === 'help' ? [] : below(child))]);
}

function commandText(command: Command): string[] {
  const usage = command.usage().replace(/\[(options|command)\] ?/g, '');
  return [
    `.SS ${escaped(`${typedName(command)} ${usage}`.trim())}`,
    escaped(command.description()),
    ...optionsOf(command),
  ];
}

function optionsOf(command: Command): string[] {
  return command.options
    .filter(({ hidden }) => !hidden)
    .flatMap((option: Option) => ['.TP', `\\fB${escaped(option.flags)}\\fR`, escaped(option.description)]);
}

// roff interprets backslashes and hyphens, and a period or an apostrophe at the start of a line.
function escaped(text: string): string {
  return text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^(?=[.'])/gm, '\\&');
}
