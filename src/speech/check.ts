import { at, type Json, type JsonObject } from '../json.ts';
import type { Violation } from '../protocols/protocol.ts';
import { shownValue } from '../protocols/violations.ts';
import { isSpeakable } from './split.ts';

/** Every rule of specification 2.6 that a body breaks; empty where it may be sent. */
export function checkSpeech(body: JsonObject): Violation[] {
  const params = 'req_params';
  return [
    ...textRule(at(body, `${params}.text`)),
    ...rule(body, `${params}.speaker`, isName, 'the name of a voice', '--speaker'),
    ...rule(body, `${params}.audio_params.format`, isFormat, formats, '--format'),
    ...rule(body, `${params}.audio_params.sample_rate`, isRate, 'a whole number of hertz', '--sample-rate'),
    ...rule(body, 'model', () => false, 'nothing: a header chooses the model of speech'),
  ];
}

const formats =
  'mp3, pcm, ogg_opus or another format of the gateway; --format wav asks for PCM and writes WAV';

function textRule(text: Json | undefined): Violation[] {
  if (typeof text === 'string' && isSpeakable(text)) return [];
  const value = text === undefined || text === '' ? '' : shownValue(text);
  return [{ field: 'req_params.text', value, allowed: 'a text with something that can be spoken' }];
}

function rule(
  body: JsonObject,
  field: string,
  holds: (value: Json) => boolean,
  allowed: string,
  flag?: string,
): Violation[] {
  const value = at(body, field);
  if (value === undefined || holds(value)) return [];
  return [{ field, value: shownValue(value) || '""', allowed, flag }];
}

function isName(value: Json): boolean {
  return typeof value === 'string' && value.trim() !== '';
}

// A WAV header in every fragment makes a file that does not play: the service's own WAV is not asked for.
function isFormat(value: Json): boolean {
  return isName(value) && value !== 'wav';
}

function isRate(value: Json): boolean {
  return Number.isInteger(value) && Number(value) > 0 && Number(value) <= 1_000_000;
}
