import { typedName } from '../command-tree.ts';
import { Help, type Command, type HelpConfiguration, type Option } from 'commander';
import { plain, type Paint } from '../output/human.ts';
import { wrap, wrapCommand } from './wrap.ts';

/** The terminal or stream that help is printed on. */
export interface Screen {
  /** The width in columns; 80 if the stream is not a terminal. */
  width: number;
  paint: Paint;
}

/** The screen for a stream that is not a terminal. */
const pageScreen: Screen = { width: 80, paint: plain };

/** The screens for requested help (`out`) and for help after an error (`err`). */
export interface Screens {
  out: Screen;
  err: Screen;
}

/** The screens if neither stream is a terminal. */
export const pageScreens: Screens = { out: pageScreen, err: pageScreen };

/** A flag, an argument or a command, with its description. */
type Entry = [term: string, description: string];

// A description starts below its term if fewer than `minText` columns are left, or the term is longer than
// `maxTermWidth`. The commands are labelled with their groups if the width is at least `minLabelledWidth`.
const minText = 24;
const maxTermWidth = 30;
const minLabelledWidth = 72;

/** How much of the help to print: only the commands, the most used flags, or everything (`--help-all`). */
export type HelpExtent = 'overview' | 'first' | 'all';

/** Commands that the first page omits, because only fleets need them. */
const fleetCommands = ['worker', 'state'];

/** The maximum number of flags on a command's first page, and the flags to choose first. */
const maxFirstFlags = 10;
const firstFlags = [
  '--model',
  '--file',
  '--speaker',
  '--image',
  '--duration',
  '--resolution',
  '--aspect-ratio',
  '--output',
  '--name',
  '--state',
  '--key',
  '--budget',
  '--concurrency',
  '--wait',
  '--timeout',
  '--set',
  '--dry-run',
];

/** Formats help. The most important parts come first; the global flags come last, without descriptions. */
export function helpStyle(screens: Screens, extent: HelpExtent): HelpConfiguration {
  let screen = screens.out;
  return {
    prepareContext: ({ error }) => void (screen = error ? screens.err : screens.out),
    showGlobalOptions: true,
    visibleCommands,
    visibleOptions,
    formatHelp: (command, help) =>
      command.parent === null
        ? frontPage(command, help, screen, extent)
        : commandPage(command, help, screen, extent),
  };
}

/** Wraps help. Examples remain valid shell commands; paragraphs and other lines are broken at spaces. */
export function fitHelp(help: string, width: number): string {
  const isLong = (line: string): boolean => line.length > width && !line.includes('\x1b');
  const fit = (line: string): string =>
    line.startsWith('  $ ') ? wrapCommand(line, width, '      ') : wrap(line, width, /^ */.exec(line)?.[0]);
  return help
    .replace(/^\S.*(?:\n\S.*)+$/gm, (paragraph) =>
      paragraph.split('\n').some(isLong) ? paragraph.replaceAll('\n', ' ') : paragraph,
    )
    .split('\n')
    .map((line) => (isLong(line) ? fit(line) : line))
    .join('\n');
}

type Group = [title: string, entries: Entry[]];

function frontPage(root: Command, help: Help, screen: Screen, extent: HelpExtent): string {
  const isShown = (child: Command): boolean => extent === 'all' || !fleetCommands.includes(child.name());
  const commands = commandGroups(help, help.visibleCommands(root).filter(isShown));
  const options = extent === 'overview' ? [] : optionGroups(root, help, help.visibleOptions(root));
  const lists =
    screen.width < minLabelledWidth
      ? groupTexts([...commands, ...options], screen)
      : groupTexts(options, screen);
  const block = screen.width < minLabelledWidth ? [] : [commandBlock(commands, screen)];
  const allCommandsHint =
    extent === 'first' ? 'To list all commands, including those for many machines: mgw --help-all' : '';
  return joinSections([
    wrap(help.commandDescription(root), screen.width),
    ...block,
    ...lists,
    allCommandsHint,
  ]);
}

function commandPage(command: Command, help: Help, screen: Screen, extent: HelpExtent): string {
  const usage = wrap(help.commandUsage(command), screen.width - 7, '  ');
  const args = help
    .visibleArguments(command)
    .map((argument): Entry => [argument.name(), help.argumentDescription(argument)]);
  const globalNames = help.visibleGlobalOptions(command).map(({ short, long }) => short ?? long ?? '');
  const options = help.visibleOptions(command);
  const shownOptions = extent === 'all' ? options : mostUsed(options);
  const hiddenCount = options.length - shownOptions.length;
  const groups: Group[] = [
    ['Arguments:', args],
    ...commandGroups(help, help.visibleCommands(command)),
    ...(hiddenCount === 0
      ? optionGroups(command, help, shownOptions)
      : [['Options:', shownOptions.map((option) => entryOf(option, command))] satisfies Group]),
  ];
  return joinSections([
    `${screen.paint('bold', 'Usage:')} ${usage}`,
    wrap(help.commandDescription(command), screen.width),
    ...groupTexts(groups, screen),
    hiddenCount === 0 ? '' : `${hiddenCount} more flags: ${typedName(command)} --help-all`,
    wrap(`Global options (see mgw --help): ${['-h', ...globalNames].join(' ')}`, screen.width),
  ]);
}

function joinSections(texts: string[]): string {
  return `${texts.filter((text) => text !== '').join('\n\n')}\n`;
}

// Returns the flags for a command's first page, in the command's own order.
function mostUsed(options: Option[]): Option[] {
  const frequent = firstFlags.flatMap((flag) => options.find(({ long }) => long === flag) ?? []);
  const first = [...new Set([...frequent, ...options])].slice(0, maxFirstFlags);
  return options.filter((option) => first.includes(option));
}

function commandGroups(help: Help, visible: Command[]): Group[] {
  const groups = help.groupItems(visible, visible, (child) => child.helpGroup() || 'Commands:');
  return [...groups].map(([title, commands]) => [
    title,
    commands.map((child) => [child.name(), help.subcommandDescription(child)]),
  ]);
}

function optionGroups(command: Command, help: Help, visible: Option[]): Group[] {
  const groups = help.groupItems(visible, visible, (option) => option.helpGroupHeading ?? 'Options:');
  return [...groups].map(([title, options]) => [title, options.map((option) => entryOf(option, command))]);
}

// Formats all commands as one block that fits on a screen, with the groups on the left.
function commandBlock(groups: Group[], { width, paint }: Screen): string {
  const labelWidth = Math.max(...groups.map(([title]) => title.length)) + 1;
  const column = columnOf(groups);
  const lines = groups.flatMap(([title, entries]) =>
    entries
      .flatMap((entry) => entryText(entry, column, { width: width - labelWidth, paint }).split('\n'))
      .map(
        (line, index) =>
          paint('bold', index === 0 ? title : '') +
          ' '.repeat(labelWidth - (index === 0 ? title.length : 0)) +
          line,
      ),
  );
  return lines.join('\n');
}

function groupTexts(groups: Group[], screen: Screen): string[] {
  const column = columnOf(groups);
  return groups
    .filter(([, entries]) => entries.length > 0)
    .map(([title, entries]) =>
      [screen.paint('bold', title), ...entries.map((entry) => entryText(entry, column, screen))].join('\n'),
    );
}

// Returns the column where descriptions begin.
function columnOf(groups: Group[]): number {
  const lengths = groups.flatMap(([, entries]) => entries.map(([term]) => term.length));
  return Math.max(0, ...lengths.filter((length) => length <= maxTermWidth)) + 4;
}

function entryText([term, description]: Entry, column: number, { width, paint }: Screen): string {
  const isNarrow = width - column < minText;
  const indent = ' '.repeat(isNarrow ? 8 : column);
  const text = wrap(indent + description, width, indent);
  const termText = `  ${paint('cyan', isNarrow ? term.trimStart() : term)}`;
  return isNarrow || term.length + 4 > column
    ? `${termText}\n${text}`
    : termText + text.slice(term.length + 2);
}

// The `help` command that the parser adds to each group works, but is not listed.
function visibleCommands(this: Help, command: Command): Command[] {
  const visible = Help.prototype.visibleCommands.call(this, command);
  return visible.filter((child) => command.commands.includes(child));
}

// -h is listed with the global flags. A switch and its negation share one entry.
function visibleOptions(this: Help, command: Command): Option[] {
  const visible = Help.prototype.visibleOptions.call(this, command);
  return visible.filter(({ long }) =>
    long === '--help' ? command.parent === null : !command.options.some((other) => isOpposite(long, other)),
  );
}

function isOpposite(long: string | undefined, { long: other = '' }: Option): boolean {
  return long === other.replace('--', '--no-');
}

function entryOf(option: Option, command: Command): Entry {
  return [termOf(option, command), descriptionOf(option)];
}

function termOf(option: Option, command: Command): string {
  const hasOpposite = command.options.some(({ long }) => isOpposite(long, option));
  const flags = hasOpposite ? option.flags.replace('--', '--[no-]') : option.flags;
  return option.short === undefined ? `    ${flags}` : flags;
}

function descriptionOf({ description, argChoices }: Option): string {
  return argChoices === undefined ? description : `${description}: ${argChoices.join(', ')}`;
}
