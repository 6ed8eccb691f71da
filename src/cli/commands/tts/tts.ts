import type { Command } from 'commander';
import { xApiKey } from '../../../exchange.ts';
import { checkKeyName } from '../../../key-name.ts';
import type { Context } from '../../context.ts';
import type { Run } from '../../action.ts';
import type { Outcome } from '../../output/outcome.ts';
import { checkSidecar, checkStdout } from '../../wait-options.ts';
import { addTtsOptions, type TtsOptions } from './options.ts';
import type { PreparedSpeech } from './prepare.ts';

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
  if (options.dryRun) return dryRunSpeech(speech, context);
  const { deliverSpeech } = await import('./deliver.ts');
  return deliverSpeech(context, speech, options);
}

/** The requests that would be sent, with the key redacted; nothing is sent. */
async function dryRunSpeech({ bodies }: PreparedSpeech, context: Context): Promise<Outcome> {
  const [{ dryRun, withCost }, { speechExchange }, settings] = await Promise.all([
    import('../video/dry-run.ts'),
    import('../../../speech/wire.ts'),
    context.settings(),
  ]);
  const shown = bodies.map((body) => dryRun(speechExchange(body), xApiKey, settings));
  const asked = bodies.map((body) => ({ protocol: 'tts' as const, body }));
  const [only, ...more] = shown;
  if (only !== undefined && more.length === 0) return withCost(only, asked, context);
  const text = shown.map((each) => each.text ?? '').join('\n\n');
  return withCost({ json: { requests: shown.map(({ json }) => json['request']) }, text }, asked, context);
}
