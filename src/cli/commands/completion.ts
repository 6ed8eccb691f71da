import { Argument, type Command } from 'commander';
import type { Outcome } from '../output/outcome.ts';
import type { Run } from '../action.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof shells)[number];

/** `mgw completion SHELL`: a completion script, made from the very commands and flags of this program. */
export function registerCompletion(parent: Command, run: Run): void {
  const command = parent
    .command('completion')
    .description('print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .addHelpText('after', examples)
    .action((shell: Shell) => run(command, () => completion(rootOf(command), shell)));
}

const examples = `
Examples:
  $ mgw completion bash > ~/.local/share/bash-completion/completions/mgw
  $ mgw completion zsh > ~/.zsh/completions/_mgw        # a folder of your fpath
  $ mgw completion fish > ~/.config/fish/completions/mgw.fish`;

function rootOf(command: Command): Command {
  return command.parent === null ? command : rootOf(command.parent);
}

async function completion(program: Command, shell: Shell): Promise<Outcome> {
  const { commandEntries } = await import('../completion/tree.ts');
  const entries = commandEntries(program);
  const script = (await writers[shell]())(entries);
  return { json: { shell, script }, text: script.trimEnd() };
}

const writers = {
  bash: async () => (await import('../completion/bash.ts')).bashCompletion,
  zsh: async () => (await import('../completion/zsh.ts')).zshCompletion,
  fish: async () => (await import('../completion/fish.ts')).fishCompletion,
} satisfies Record<Shell, unknown>;
