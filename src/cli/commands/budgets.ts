import type { Command } from 'commander';
import type { Run } from '../action.ts';

const text = `A budget is an amount that is never exceeded, whoever spends it: any number of commands at once, killed or not.

Prices come first, since the gateway does not tell them; without one nothing is sent under a budget (exit 12).
  $ mgw config set prices.c.vendor-h3 'second=0.20' 'resolution=2K: second=0.40'
  $ mgw config set prices.a.veo-3 'second=0.12 default_seconds=8'
  $ mgw config set prices.tts '10k_characters=2.50'
Units are second and video, and for speech 10k_characters (10k_visible_characters where white space is free).
prices.group_multiplier and prices.user_multiplier multiply all of them. The sandbox brings prices of its own.

--budget AMOUNT is for one command, or for one batch: all its runs and takes together.
  $ mgw video c submit "a boat" --model vendor-h3 --duration 5 --budget 1
A standing budget has a name, and is chosen by --budget-name or for the whole profile.
  $ mgw budget set clips 100 --per month
  $ mgw config set budget clips

Before anything is sent, what it may cost at most is reserved on disk. What was refused gives it back, what was
accepted keeps it, and what nobody knows (exit 7) keeps it until mgw jobs resolve says what became of it.
Where it does not fit, nothing is sent: exit 12, and the error says by how much and what is left.

  $ mgw budget ls                      limits, what is spent, reserved and left
  $ mgw spend --by day --since 30d     what was spent, under a budget or not`;

/** `mgw help budgets`: how money is counted (design 14). */
export function registerBudgets(help: Command, run: Run): void {
  const command = help
    .command('budgets')
    .description('what may be spent, and how it is counted')
    .action(() => run(command, () => Promise.resolve({ json: { help: text }, text })));
}
