import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { PreparedSpeech, TtsOptions } from './speech.ts';
import type { Context } from '../../context.ts';
import { budgetOptions, single, wholeNumber } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  addCallOptions,
  addOutputOptions,
  checkFileOptions,
  checkStdout,
  jobOptions,
  markOption,
  noCheckOption,
  addEndOptions,
  requestOptions,
  sidecarOption,
} from '../../wait-options.ts';
import { xApiKey } from '../../../exchange.ts';
import { checkKeyName } from '../../../jobs/ref.ts';
import { speechFlags } from '../../../speech/flags.ts';
import { checkNoTemplate } from '../../../store-url.ts';

/** Adds the flags of `mgw tts`. */
function addTtsOptions(command: Command): void {
  command.optionsGroup('Speech:');
  for (const { flags, description, parse } of speechFlags)
    command.addOption(single(flags, description, parse));
  command
    .addOption(single('--file <file>', 'read the text from this file; - reads it from stdin'))
    .option('--split', 'speak long text in pieces, and join them; a rerun pays only for missing pieces')
    .addOption(
      single(
        '--piece-length <characters>',
        'maximum length of a piece with --split (default 1000)',
        wholeNumber(1),
      ),
    )
    .addOption(
      single('--concurrency <n>', 'maximum number of pieces in progress (default 3)', wholeNumber(1, 64)),
    );
  addOutputOptions(command);
  command.addOption(sidecarOption()).addOption(markOption());
  addCallOptions(command, '2m');
  addEndOptions(command);
  const moreOptions = [
    ...jobOptions(),
    ...budgetOptions('this speech'),
    ...requestOptions('req_params.speaker=NAME', noCheckOption()),
  ];
  for (const option of moreOptions) command.addOption(option);
}

const examples = `
Examples:
  $ mgw tts "Good morning." -o morning.mp3
  $ mgw tts --file chapter.txt --split -o chapter.mp3
  $ echo "Good morning." | mgw tts - --format wav -o - | aplay
  $ mgw tts "Good morning." --speaker VOICE --sample-rate 16000 -o morning.wav`;

/** `mgw tts [TEXT|-] -o FILE|-`: speaks text (specification 2.6, 4.4). */
export function registerTts(command: Command, run: Run): void {
  command.argument('[text]', 'the text to speak; - reads it from stdin');
  addTtsOptions(command);
  command
    .addHelpText('after', examples)
    .action((text: string | undefined) =>
      run(command, (context) => tts(context, text, command.opts()), 'runs jobs'),
    );
}

async function tts(context: Context, text: string | undefined, options: TtsOptions): Promise<Outcome> {
  checkKeyName(options.key, options.new);
  checkStdout(context, options);
  checkNoTemplate('--output', options.output);
  checkFileOptions(options);
  const { deliverSpeech, prepareSpeech } = await import('./speech.ts');
  const speech = await prepareSpeech(context, text, options);
  if (options.dryRun) return dryRunSpeech(speech, context);
  return deliverSpeech(context, speech, options);
}

/** Returns the requests that would be sent, with the key redacted. Sends nothing. */
async function dryRunSpeech({ bodies }: PreparedSpeech, context: Context): Promise<Outcome> {
  const [{ dryRun, withCost }, { speechExchange }, settings] = await Promise.all([
    import('../video/body.ts'),
    import('../../../speech/wire.ts'),
    context.settings(),
  ]);
  const dryRuns = bodies.map((body) => dryRun(speechExchange(body), xApiKey, settings));
  const queries = bodies.map((body) => ({ protocol: 'tts' as const, body }));
  const [only, ...more] = dryRuns;
  if (only !== undefined && more.length === 0) return withCost(only, queries, context);
  const text = dryRuns.map((each) => each.text ?? '').join('\n\n');
  return withCost({ json: { requests: dryRuns.map(({ json }) => json['request']) }, text }, queries, context);
}
