import type { Command } from 'commander';
import { checkKeyName } from '../../../key-name.ts';
import type { Context } from '../../context.ts';
import type { Run } from '../../action.ts';
import type { Outcome } from '../../output/outcome.ts';
import { checkSidecar, checkStdout } from '../../wait-options.ts';
import { addTtsOptions, type TtsOptions } from './options.ts';

const examples = `
Examples:
  $ mgw tts "Good morning." -o morning.mp3
  $ mgw tts --file chapter.txt --split -o chapter.mp3
  $ echo "Good morning." | mgw tts - --format wav -o - | aplay
  $ mgw tts "Good morning." --speaker VOICE --sample-rate 16000 -o morning.wav`;

/** `mgw tts [TEXT|-] -o FILE|-`: speaks a text (specification 2.6, 4.4). */
export function registerTts(command: Command, run: Run): void {
  command.argument('[text]', 'what to speak; - reads it from stdin');
  addTtsOptions(command);
  command
    .addHelpText('after', examples)
    .action((text: string | undefined) => run(command, (context) => tts(context, text, command.opts())));
}

async function tts(context: Context, text: string | undefined, options: TtsOptions): Promise<Outcome> {
  checkKeyName(options.key, options.new);
  checkStdout(context, options);
  checkSidecar(options);
  const { prepareSpeech } = await import('./prepare.ts');
  const speech = await prepareSpeech(context, text, options);
  if (options.dryRun) return (await import('./dry-run.ts')).dryRunSpeech(speech, context);
  const { deliverSpeech } = await import('./deliver.ts');
  return deliverSpeech(context, speech, options);
}
