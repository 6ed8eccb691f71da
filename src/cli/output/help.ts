import { Help, type Command, type HelpConfiguration } from 'commander';

/**
 * How help looks: commander's own, with the list of commands first, and below `mgw` itself the global flags by name
 * alone. A group's own `help` works and is not listed.
 */
export const helpStyle: HelpConfiguration = { showGlobalOptions: true, visibleCommands, formatHelp };

function visibleCommands(this: Help, command: Command): Command[] {
  const visible = Help.prototype.visibleCommands.call(this, command);
  return visible.filter((child) => command.commands.includes(child));
}

function formatHelp(this: Help, command: Command, help: Help): string {
  const sections = Help.prototype.formatHelp.call(this, command, help).trimEnd().split('\n\n');
  const isGroup = command.commands.length > 0;
  const [commands, others] = split(sections, (section) => section.startsWith('Commands:'));
  const [globals, own] = split(others, (section) => section.startsWith('Global Options:'));
  const [options, head] = split(own, (section) => isGroup && section.startsWith('Options:'));
  const tail = globals.length === 0 ? options : [...options, globalNames(command, help)];
  return `${[...head, ...commands, ...tail].join('\n\n')}\n`;
}

function split(sections: string[], test: (section: string) => boolean): [string[], string[]] {
  return [sections.filter(test), sections.filter((section) => !test(section))];
}

function globalNames(command: Command, help: Help): string {
  const names = help.visibleGlobalOptions(command).map(({ short, long }) => short ?? long ?? '');
  return help.boxWrap(`Global options, see mgw --help: ${names.join(' ')}`, help.helpWidth ?? 80);
}
