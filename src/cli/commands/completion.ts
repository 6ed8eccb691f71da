import { Argument, type Command } from 'commander';
import type { Outcome } from '../output/outcome.ts';
import type { Run } from '../action.ts';

const shells = ['bash', 'zsh', 'fish', 'powershell'] as const;
type Shell = (typeof shells)[number];

/** `mgw completion SHELL`: a script that asks `mgw __complete` what can follow. */
export function registerCompletion(command: Command, run: Run): void {
  command
    .addArgument(new Argument('<shell>', 'the shell: bash, zsh, fish or powershell').choices(shells))
    .addHelpText('after', examples)
    .action((shell: Shell) => run(command, () => completion(shell)));
}

const examples = `
Models are completed from the last mgw models; nothing is asked of the gateway. For zsh the folder has to be on the fpath.

Examples:
  $ mgw completion bash > ~/.local/share/bash-completion/completions/mgw
  $ mgw completion zsh > ~/.zsh/completions/_mgw
  $ mgw completion fish > ~/.config/fish/completions/mgw.fish
  $ mgw completion powershell > mgw-completion.ps1`;

async function completion(shell: Shell): Promise<Outcome> {
  const script = await scripts[shell]();
  return { json: { shell, script }, text: script.trimEnd() };
}

const scripts = {
  bash: async () => (await import('../completion/bash.ts')).bashCompletion,
  zsh: async () => (await import('../completion/zsh.ts')).zshCompletion,
  fish: async () => (await import('../completion/fish.ts')).fishCompletion,
  powershell: async () => (await import('../completion/powershell.ts')).powershellCompletion,
} satisfies Record<Shell, () => Promise<string>>;
