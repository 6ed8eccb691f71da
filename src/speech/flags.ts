import { type JsonObject, textAt } from '../json.ts';
import { valueFlag } from '../protocols/flag.ts';
import type { Flag, Quantity } from '../protocols/protocol.ts';

/** The flags of `mgw tts` that set body fields (specification 2.6). */
export const speechFlags: readonly Flag[] = [
  valueFlag(
    '--speaker <voice>',
    'req_params.speaker',
    "the voice (default: tts.speaker, else the gateway's default)",
  ),
  valueFlag(
    '--format <name>',
    'req_params.audio_params.format',
    'mp3, wav, pcm or ogg_opus (default: from the extension, else mp3)',
    { words: ['mp3', 'wav', 'pcm', 'ogg_opus'] },
  ),
  valueFlag(
    '--sample-rate <hertz>',
    'req_params.audio_params.sample_rate',
    'samples per second (default 24000)',
    { parse: hertz },
  ),
];

function hertz(value: string | boolean): number {
  const rate = /^[1-9]\d{0,6}$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!(rate <= 1_000_000)) throw new Error('a whole number, 1 to 1000000');
  return rate;
}

/**
 * Returns the maximum quantity that a speech body is billed for: its characters, counted as code points and not as
 * bytes (specification 8).
 */
export function speechQuantity(body: JsonObject): Quantity {
  // Some gateways speak `ssml`, which is not in the specification, instead of the text.
  const text = `${textAt(body, 'req_params.text') ?? ''}${textAt(body, 'req_params.ssml') ?? ''}`;
  const characters = Array.from(text).length;
  return { characters, visibleCharacters: Array.from(text.replace(/\s+/gu, '')).length, body };
}
