import type { Settings } from '../config/resolve.ts';
import { usageError } from '../errors.ts';
import { at, isObject, type JsonObject } from '../json.ts';
import { applySets } from '../protocols/compose.ts';
import { violationMessage } from '../protocols/violations.ts';
import { checkSpeech } from './check.ts';
import { formatFor, type SpeechFormat } from './format.ts';

const defaultRate = 24_000;

/** What a body of speech is made of apart from its text; the settings fill in what is left out. */
export interface SpeechFields {
  format?: string;
  sampleRate?: number;
  speaker?: string;
  set?: string[];
  /** False skips the local checks. */
  check?: boolean;
}

/**
 * The body that speaks a text into `target`, checked.
 * @throws MgwError('usage') naming every field that is wrong.
 */
export function composeSpeech(
  text: string,
  target: string | undefined,
  fields: SpeechFields,
  settings: Settings,
): { body: JsonObject; format: SpeechFormat; sampleRate: number } {
  const format = formatFor(fields.format, target, settings.ttsFormat.value);
  const body = bodyOf(text, format, fields, settings);
  const violations = fields.check === false ? [] : checkSpeech(body);
  if (violations.length > 0) throw usageError(violationMessage(violations));
  const rate = at(body, 'req_params.audio_params.sample_rate');
  return { body, format, sampleRate: typeof rate === 'number' ? rate : defaultRate };
}

function bodyOf(text: string, format: SpeechFormat, options: SpeechFields, settings: Settings): JsonObject {
  const speaker = options.speaker ?? settings.ttsSpeaker.value;
  const sampleRate = options.sampleRate ?? settings.ttsSampleRate.value ?? defaultRate;
  const body: JsonObject = {
    req_params: {
      text,
      ...(speaker !== undefined && { speaker }),
      // Defaults may differ between versions, so both are sent explicitly (specification 9).
      audio_params: { format: format.wire, sample_rate: sampleRate },
    },
  };
  applySets(body, options.set ?? []);
  return withAdditions(body);
}

// `additions` is a string of JSON on the wire; --set reads the same text as an object.
function withAdditions(body: JsonObject): JsonObject {
  const params = body['req_params'];
  if (!isObject(params) || !isObject(params['additions'])) return body;
  return { ...body, req_params: { ...params, additions: JSON.stringify(params['additions']) } };
}
