import type { Command } from 'commander';
import type { Run } from '../action.ts';
import { rootOf } from '../command-tree.ts';

// The global flags that decide which jobs, models and profiles there are.
const telling = { '--profile': 'profile', '--base-url': 'baseUrl' };
const switches = { '--sandbox': 'sandbox', '--allow-http': 'allowHttp' };

/**
 * `mgw __complete -- WORD...`: what the last of the words after `mgw` may become, for the scripts of `mgw completion`.
 * `--new-word` stands for a last word that is empty, where a shell cannot pass one.
 */
export function registerComplete(command: Command, run: Run): void {
  command
    .argument('[words...]')
    .option('--new-word')
    .action(async (words: string[], { newWord }: { newWord?: boolean }) => {
      const { placeOf } = await import('../completion/place.ts');
      const root = rootOf(command);
      const place = await placeOf(root, newWord ? [...words, ''] : words);
      for (const [flag, name] of Object.entries(telling)) root.setOptionValue(name, place.given.get(flag));
      for (const [flag, name] of Object.entries(switches))
        if (place.given.has(flag)) root.setOptionValue(name, true);
      return run(command, async (context) => {
        const { answerFor } = await import('../completion/answer.ts');
        return { json: {}, text: await answerFor(context, root, place) };
      });
    });
}
