import type { Settings } from '../../../config/resolve.ts';
import { xApiKey } from '../../../exchange.ts';
import { speechExchange } from '../../../speech/wire.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Context } from '../../context.ts';
import { dryRun, withCost } from '../video/dry-run.ts';
import type { PreparedSpeech } from './prepare.ts';

/** The requests that would be sent, with the key redacted; nothing is sent. */
export async function dryRunSpeech(speech: PreparedSpeech, context: Context): Promise<Outcome> {
  const settings = await context.settings();
  const asked = speech.bodies.map((body) => ({ protocol: 'tts' as const, body }));
  return withCost(requestsOf(speech, settings), asked, context);
}

function requestsOf(speech: PreparedSpeech, settings: Settings): Outcome {
  const shown = speech.bodies.map((body) => dryRun(speechExchange(body), xApiKey, settings));
  const [only, ...more] = shown;
  if (only !== undefined && more.length === 0) return only;
  return {
    json: { requests: shown.map(({ json }) => json['request']) },
    text: shown.map(({ text }) => text ?? '').join('\n\n'),
  };
}
