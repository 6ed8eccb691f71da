import { extname } from 'node:path';
import * as z from 'zod/mini';
import type { Settings } from '../config/resolve.ts';
import { usageError } from '../errors.ts';
import type { JobFile } from '../job.ts';
import { at, isObject, textAt, type JsonObject } from '../json.ts';
import {
  adviseOfUnlisted,
  type BodySchema,
  checkShape,
  withDescriptions,
  text,
  wholeNumber,
} from '../protocols/body-schema.ts';
import { applySets } from '../protocols/compose.ts';
import type { Violation } from '../protocols/protocol.ts';
import { valueInFile, violationMessage } from '../protocols/violations.ts';
import { speechFlags } from './flags.ts';
import { speakable } from './split.ts';

const defaultRate = 24_000;

/** The parts of a speech body that have a setting. */
export interface Voice {
  format?: string | undefined;
  sampleRate?: number | undefined;
  speaker?: string | undefined;
}

/** The parts of a speech body other than its text. */
export interface SpeechFields extends Voice {
  /** The values of missing parts, if they are not taken from this machine's settings. */
  defaults?: Voice;
  set?: string[];
  /** Fields of `req_params` by their exact names. They override all others. */
  params?: JsonObject;
  /** Whether to run the local checks. Default: true. */
  check?: boolean;
  /** Whether the text was read from a file. If so, errors do not quote it. */
  isFromFile?: boolean;
}

/** Speech that can be sent: its request and what the user specified of it. */
export interface ComposedSpeech {
  /** The body to send (specification 2.6). */
  body: JsonObject;
  /** The body without the defaults. Two commands with the same `userBody` and `variant` request the same speech. */
  userBody?: JsonObject | undefined;
  /** Distinguishes a WAV file from PCM, because both have the same body. */
  variant?: string | undefined;
  /** The defaults that completed the body. */
  defaults?: Voice | undefined;
  format: SpeechFormat;
  /** Sample rate, in hertz. */
  sampleRate: number;
}

/**
 * Returns the checked request that speaks text into `target`, and advice about its fields that are not in the
 * specification.
 * @throws MgwError('usage') listing every invalid field.
 */
export function composeSpeech(
  text: string,
  target: string | undefined,
  fields: SpeechFields,
  settings: Settings,
): ComposedSpeech & { advice: string[] } {
  const { speaker, sampleRate: userRate, defaults = voiceIn(settings) } = fields;
  const userFormat = formatFor(fields.format, target);
  const chosen = userFormat ?? speechFormat(defaults.format ?? 'mp3');
  const userBody = bodyOf(text, { format: userFormat?.wire, sampleRate: userRate, speaker }, fields);
  // Defaults may differ between versions, so send the format and the sample rate explicitly (specification 9).
  const voice = {
    format: chosen.wire,
    sampleRate: userRate ?? defaults.sampleRate,
    speaker: speaker ?? defaults.speaker,
  };
  const body = bodyOf(text, voice, fields);
  // --set takes precedence over --format.
  const wire = textAt(body, 'req_params.audio_params.format') ?? chosen.wire;
  const format = wire === chosen.wire ? chosen : speechFormat(wire);
  const withoutFileContent = (violation: Violation): Violation =>
    fields.isFromFile && violation.field === 'req_params.text' && violation.value !== ''
      ? { ...violation, value: valueInFile }
      : violation;
  const violations = fields.check === false ? [] : checkSpeech(body);
  if (violations.length > 0) throw usageError(violationMessage(violations.map(withoutFileContent)));
  const rate = at(body, 'req_params.audio_params.sample_rate');
  const sampleRate = typeof rate === 'number' ? rate : defaultRate;
  const variant = format.wav && format === userFormat ? 'wav' : undefined;
  return { body, userBody, variant, defaults, format, sampleRate, advice: adviseOfUnlisted(schema, body) };
}

function voiceIn({ ttsFormat, ttsSampleRate, ttsSpeaker }: Settings): Voice {
  return { format: ttsFormat.value, sampleRate: ttsSampleRate.value, speaker: ttsSpeaker.value };
}

function bodyOf(
  text: string,
  { format, sampleRate, speaker }: Voice,
  { set = [], params }: SpeechFields,
): JsonObject {
  const body: JsonObject = {
    req_params: {
      text,
      ...(speaker !== undefined && { speaker }),
      audio_params: {
        ...(format !== undefined && { format }),
        ...(sampleRate !== undefined && { sample_rate: sampleRate }),
      },
      ...params,
    },
  };
  applySets(body, set);
  return withAdditions(body);
}

// Converts `additions` to a JSON string, as the gateway requires. --set parses the same text as an object.
function withAdditions(body: JsonObject): JsonObject {
  const params = body['req_params'];
  if (!isObject(params) || !isObject(params['additions'])) return body;
  return { ...body, req_params: { ...params, additions: JSON.stringify(params['additions']) } };
}

const textRule = 'text with at least one letter or digit';
const formatRule =
  'mp3, pcm, ogg_opus or another format of the gateway; --format wav requests PCM and writes WAV';
// The service's own WAV has a header in every fragment and does not play, so it is never requested.
const notWav = z.regex(/^(?!wav$)/, { error: formatRule });

/** The schema of a speech body. Specification 2.6 does not limit its formats and sample rates. */
export const schema: BodySchema = withDescriptions(
  z.strictObject({
    req_params: z.strictObject(
      {
        text: z
          .string({ error: textRule })
          .check(z.regex(speakable, { error: textRule }), z.describe('the text to speak')),
        speaker: z.optional(text('the name of a voice')),
        audio_params: z.optional(
          z.strictObject(
            {
              format: z.optional(
                text(formatRule).check(notWav, z.describe('mp3, pcm, ogg_opus or another format')),
              ),
              sample_rate: z.optional(wholeNumber('a whole number of hertz, 1 to 1000000', 1, 1_000_000)),
            },
            { error: 'an object' },
          ),
        ),
      },
      { error: 'an object with text' },
    ),
    model: z.optional(z.never({ error: 'none, because a header selects the speech model' })),
  }),
  // The flag also accepts wav, which is not a format of the body.
  speechFlags.filter(({ flags }) => !flags.startsWith('--format')),
);

/** Returns every rule of specification 2.6 that a body breaks; empty if it may be sent. */
export function checkSpeech(body: JsonObject): Violation[] {
  return checkShape(schema, body, speechFlags);
}

/** The format of speech in the request and in the file. */
export interface SpeechFormat {
  /** The name as the user specifies it: `mp3`, `wav`, `pcm`, `ogg_opus`, or a format that mgw does not know. */
  name: string;
  /** `audio_params.format`, as sent (specification 2.6). */
  wire: string;
  mime: string;
  /** Whether PCM is requested and a WAV header is written before it. */
  wav: boolean;
}

const mimes: Record<string, string> = {
  mp3: 'audio/mpeg',
  wav: 'audio/wav',
  pcm: 'audio/L16',
  ogg_opus: 'audio/ogg',
};

const byExtension: Record<string, string> = {
  '.mp3': 'mp3',
  '.wav': 'wav',
  '.pcm': 'pcm',
  '.raw': 'pcm',
  '.ogg': 'ogg_opus',
  '.oga': 'ogg_opus',
  '.opus': 'ogg_opus',
};

const otherAudio = new Set(['.aac', '.aif', '.aiff', '.amr', '.flac', '.m4a', '.mka', '.webm', '.wma']);

/**
 * Finds a format by its name. For `wav`, PCM is requested, because real services repeat the WAV header in every
 * fragment. An unknown name is sent unchanged, because the specification does not limit the values (2.6).
 */
function speechFormat(name: string): SpeechFormat {
  const wav = name === 'wav';
  return { name, wire: wav ? 'pcm' : name, mime: mimes[name] ?? 'application/octet-stream', wav };
}

// Returns the format that the user chose: the format named `name`, else the format of the file's extension. Undefined
// if the user chose none. Throws a usage error if the extension belongs to an audio format that mgw does not know.
function formatFor(name: string | undefined, output: string | undefined): SpeechFormat | undefined {
  if (name !== undefined) return speechFormat(name);
  const extension = extname(output ?? '').toLowerCase();
  if (otherAudio.has(extension))
    throw usageError(
      `--output: no known format has the extension ${extension}; use .mp3, .wav, .pcm, .ogg or .opus, or set --format.`,
    );
  const format = byExtension[extension];
  return format === undefined ? undefined : speechFormat(format);
}

/**
 * Checks that the extension of a copy does not belong to a format other than that of the saved speech. A copy is not
 * converted. Allows extensions that mgw does not know.
 * @throws MgwError('usage') naming an extension of the speech's format.
 */
export function checkCopyExtension(output: string, saved: Pick<JobFile, 'path' | 'mime'>): void {
  const extension = extname(output).toLowerCase();
  const format = Object.keys(mimes).find((name) => mimes[name] === saved.mime);
  const isOther = otherAudio.has(extension) || ![undefined, format].includes(byExtension[extension]);
  // The user may have chosen this extension for the speech itself, with --format.
  const isChosen = extension === extname(saved.path).toLowerCase();
  if (format === undefined || !isOther || isChosen) return;
  const correct = Object.keys(byExtension).find((each) => byExtension[each] === format) ?? '';
  throw usageError(
    `--output: the speech was saved as ${format}, which is not the format of a ${extension} file. Use the extension ${correct}.`,
  );
}
