import type { Settings } from '../../../config/resolve.ts';
import { xApiKey } from '../../../exchange.ts';
import { speechExchange } from '../../../speech/wire.ts';
import type { Outcome } from '../../output/outcome.ts';
import { dryRun } from '../video/dry-run.ts';
import type { PreparedSpeech } from './prepare.ts';

/** The requests that would be sent, with the key redacted; nothing is sent. */
export function dryRunSpeech(speech: PreparedSpeech, settings: Settings): Outcome {
  const shown = speech.bodies.map((body) => dryRun(speechExchange(body), xApiKey, settings));
  const [only, ...more] = shown;
  if (only !== undefined && more.length === 0) return only;
  return {
    json: { requests: shown.map(({ json }) => json['request']) },
    text: shown.map(({ text }) => text ?? '').join('\n\n'),
  };
}
