import type { Command } from 'commander';
import {
  childOf,
  loadCommand,
  loadAll,
  pathOf,
  rootOf,
  type Run,
  readPage,
  type Topic,
  topics,
} from '../command-tree.ts';
import type { Context } from '../context.ts';
import { renderMarkdown } from '../help/markdown.ts';
import { columnsOf } from '../io.ts';
import { paintOn } from '../output/human.ts';
import type { Outcome } from '../output/outcome.ts';
import { unknownCommand } from '../usage.ts';
import { nearestName } from '../../nearest.ts';

/** `mgw help [COMMAND...]`: prints a command's help, at any depth. `mgw help TOPIC` prints a page. */
export function registerHelp(help: Command, run: Run): void {
  help
    .argument('[command...]', 'command, such as video c submit')
    .commandsGroup('Topics:')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw help resuming\n  $ mgw help video c submit\n  $ mgw help exit-codes\n\n' +
        'To print a page that a topic links to, use its file name: mgw help store.md',
    )
    .action(async (path: string[]) => {
      const page = await pageNamed(rootOf(help), path);
      if (page === undefined) return (await commandNamed(rootOf(help), path)).help();
      return run(help, (context) => showPage(page, context));
    });
  for (const topic of topics) {
    const command = help
      .command(topic.name)
      .description(topic.about)
      .argument('[command...]', 'subcommand, if the topic is also a command')
      .action(async (path: string[]) =>
        path.length === 0
          ? run(command, (context) => showPage(topic.page, context))
          : (await commandNamed(rootOf(help), [topic.name, ...path])).help(),
      );
  }
}

// Returns the file name of a page that is not a topic. The user can omit the extension unless a command has the same
// name.
async function pageNamed(root: Command, [name = '', ...rest]: string[]): Promise<string | undefined> {
  if (rest.length > 0 || !/^[\w/-]+(\.md|\.yaml)?$/.test(name)) return undefined;
  if (name.includes('.')) return name;
  const page = `${name}.md`;
  const isPage =
    childOf(root, name) === undefined && (await readPage(page).catch(() => undefined)) !== undefined;
  return isPage ? page : undefined;
}

async function showPage(file: Topic['page'], { io, globals }: Context): Promise<Outcome> {
  const page = await readPage(file);
  if (file.endsWith('.yaml')) return { json: { help: page }, text: page.trimEnd() };
  const paint = paintOn(io.stdout, io.env, globals.color);
  const text = renderMarkdown(page, { width: columnsOf(io.stdout) ?? 80, paint });
  if (file !== 'exit-codes.md') return { json: { help: page }, text };
  const { exitCodeData } = await import('../help/command-data.ts');
  return { json: { exit_codes: await exitCodeData() }, text };
}

async function commandNamed(command: Command, [name, ...rest]: string[]): Promise<Command> {
  await loadCommand(command);
  if (name === undefined) return command;
  const found = childOf(command, name);
  if (found !== undefined) return commandNamed(found, rest);
  await loadAll(command);
  const near = nearestCommand(command, name);
  if (near === undefined) throw unknownCommand(command, name);
  throw unknownCommand(command, name, `${near}?`, ['mgw', 'help', ...pathOf(command), near]);
}

// Returns the command or topic that is most similar to `name`; undefined if none is similar.
function nearestCommand(command: Command, name: string): string | undefined {
  const names = command.commands.map((child) => child.name());
  const candidates = command.parent === null ? [...names, ...topics.map((topic) => topic.name)] : names;
  return nearestName(name, candidates);
}
