import type { Context } from '../../context.ts';
import { readInputText, readStdin } from '../../input.ts';
import type { BudgetOptions } from '../../options.ts';
import { type OutputOptions, targetOf } from '../../wait-options.ts';
import { usageError } from '../../../errors.ts';
import { at, type JsonObject } from '../../../json.ts';
import { composeSpeech, type SpeechFormat } from '../../../speech/compose.ts';
import { type Joiner, joinerFor } from '../../../speech/containers.ts';
import { splitText } from '../../../speech/split.ts';
import { absoluteOutput, isObjectUrl } from '../../../store-url.ts';

/** The options of `mgw tts` that are not settings. */
export interface TtsOptions extends OutputOptions, BudgetOptions {
  file?: string;
  format?: string;
  sampleRate?: number;
  set?: string[];
  split?: boolean;
  pieceLength?: number;
  concurrency?: number;
  key?: string;
  new?: boolean;
  dryRun?: boolean;
  check?: boolean;
}

/** Speech that was composed and checked, but not sent. */
export interface PreparedSpeech {
  /** The body of each call; several with `--split`. */
  bodies: JsonObject[];
  format: SpeechFormat;
  /** Hertz. */
  sampleRate: number;
  /** Absolute path, or undefined for standard output. */
  target: string | undefined;
  /** Joins the audio of the bodies into one output, with `--split`. */
  joiner?: Joiner;
}

const defaultPieceLength = 1000;

/**
 * Composes speech from text, flags and settings, and checks it.
 * @throws MgwError('usage') naming every flag or field that is wrong.
 */
export async function prepareSpeech(
  context: Context,
  given: string | undefined,
  options: TtsOptions,
): Promise<PreparedSpeech> {
  checkSplit(options);
  const settings = await context.settings();
  const target = outputOf(options);
  const text = await textOf(context, given, options);
  const { body, ...composed } = composeSpeech(
    text,
    target,
    { ...options, isFromFile: options.file !== undefined && options.file !== '-' },
    settings,
  );
  if (!options.split) return { bodies: [body], ...composed, target };
  const { format } = composed;
  const joiner = joinerFor(format.wire);
  if (joiner === undefined)
    throw usageError(`--split cannot join ${format.name}; allowed: mp3, wav, pcm, ogg_opus`);
  return { bodies: piecesOf(body, options), ...composed, target, joiner };
}

function checkSplit(options: TtsOptions): void {
  if (options.split && isObjectUrl(options.output ?? ''))
    throw usageError('--split joins the pieces in a local file: give --output a file name.');
  const { split, key, pieceLength, concurrency, sidecar } = options;
  if (split && sidecar) throw usageError('--sidecar describes one job, and --split makes several.');
  if (split && key !== undefined)
    throw usageError(
      '--key names one job, and --split makes several: run it again, and only missing pieces are paid for.',
    );
  const stray =
    pieceLength !== undefined ? '--piece-length' : concurrency !== undefined ? '--concurrency' : '';
  if (!split && stray !== '') throw usageError(`${stray} goes with --split.`);
}

function outputOf(options: TtsOptions): string | undefined {
  const target = targetOf(options);
  if (target === undefined)
    throw usageError(
      'Where to put the audio? Name a file by -o FILE, or write it to standard output by -o -.',
    );
  if (/[\\/]$/.test(options.output ?? '')) throw usageError('--output names a folder: name a file in it.');
  return target.kind === 'stdout' ? undefined : absoluteOutput(target.path);
}

async function textOf(context: Context, given: string | undefined, options: TtsOptions): Promise<string> {
  const { file } = options;
  if (given !== undefined && file !== undefined) throw usageError('Give TEXT or --file, not both.');
  if (given === undefined && file === undefined)
    throw usageError('What to speak? Give TEXT, --file FILE, or - to read it from standard input.');
  if (given !== undefined && given !== '-') return given;
  const text =
    given === '-' || file === '-' ? await readStdin(context.io) : await readInputText(file ?? '', '--file');
  return text.replace(/^\ufeff/, '').replace(/\r?\n$/, '');
}

function piecesOf(body: JsonObject, options: TtsOptions): JsonObject[] {
  const text = at(body, 'req_params.text');
  const pieces = splitText(typeof text === 'string' ? text : '', options.pieceLength ?? defaultPieceLength);
  return pieces.map((piece) => ({
    ...body,
    req_params: { ...(body['req_params'] as JsonObject), text: piece },
  }));
}
