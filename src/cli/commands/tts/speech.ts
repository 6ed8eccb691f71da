import type { Context } from '../../context.ts';
import { readInputText, readStdin } from '../../input.ts';
import type { BudgetOptions } from '../../options.ts';
import { type OutputOptions, targetOf } from '../../wait-options.ts';
import { usageError, exitCodes, MgwError, toMgwError } from '../../../errors.ts';
import { at, type JsonObject, type Json } from '../../../json.ts';
import { composeSpeech, type SpeechFormat } from '../../../speech/compose.ts';
import { splitText } from '../../../speech/split.ts';
import { type Joiner, joinerFor } from '../../../speech/containers.ts';
import { absoluteOutput, isObjectUrl } from '../../../store-url.ts';
import type { Delivered } from '../../../flows/deliver.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import { speak, speakInPieces, type SpeechSubmission } from '../../../flows/speak.ts';
import { jobView } from '../../../jobs/view.ts';
import { PiecesError } from '../../../speech/errors.ts';
import { ClosedPipe } from '../../../speech/sink.ts';
import type { Outcome } from '../../output/outcome.ts';
import { costText, savedText, deliveredOutcome } from '../video/delivered.ts';
import { currencyOf } from '../../../flows/prices.ts';

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
  /** The sample rate in hertz. */
  sampleRate: number;
  /** The absolute path of the output; undefined for standard output. */
  target: string | undefined;
  /** With `--split`: joins the audio of all calls into one output. */
  joiner?: Joiner;
}

const defaultPieceLength = 1000;

/**
 * Composes a speech request from text, flags and settings, and checks it.
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
  if (!split && stray !== '') throw usageError(`${stray} requires --split.`);
}

function outputOf(options: TtsOptions): string | undefined {
  const target = targetOf(options);
  if (target === undefined) {
    const { format = 'mp3' } = options;
    const lacks = ['-o', `speech.${format === 'ogg_opus' ? 'ogg' : format}`];
    const message = 'No output: name a file with -o FILE, or write the audio to standard output with -o -.';
    throw new MgwError('usage', message, { lacks });
  }
  if (/[\\/]$/.test(options.output ?? '')) throw usageError('--output is a folder: use a file in it.');
  return target.kind === 'stdout' ? undefined : absoluteOutput(target.path);
}

async function textOf(context: Context, given: string | undefined, options: TtsOptions): Promise<string> {
  const { file } = options;
  if (given !== undefined && file !== undefined) throw usageError('Give TEXT or --file, not both.');
  if (given === undefined && file === undefined)
    throw usageError('No text: give TEXT, --file FILE, or - to read it from standard input.');
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

/** Speaks a prepared text, as one job or with `--split` as several, and prints the path of the audio. */
export async function deliverSpeech(
  context: Context,
  speech: PreparedSpeech,
  options: TtsOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, mark, budget, concurrency } = options;
  const [deps, deadline] = await Promise.all([context.jobDeps(), context.deadline()]);
  const output = speech.target ?? context.io.stdout;
  const wanted = { output, force, sidecar, mark, fresh, deadline, key, budget };
  const { bodies, joiner, format, sampleRate } = speech;
  try {
    if (joiner !== undefined)
      return await deliverPieces(context, { ...speech, joiner }, concurrency, wanted, deps);
    const [body = {}] = bodies;
    const onAudio = (bytes: number): void => context.progress.downloading({ bytes });
    const run = (): Promise<Delivered> =>
      speak({ body, format, sampleRate }, wanted, { ...deps, onAudio }).finally(() =>
        context.progress.stop(),
      );
    return quietIfPipeClosed(await deliveredOutcome(context, options, run, spokenText));
  } finally {
    context.progress.stop();
  }
}

function spokenText({ job, isResumed }: Delivered): string {
  if (isResumed) return `Job ${job.id} was already paid for; nothing was sent.`;
  const words = at(job.usage as Json, 'text_words');
  const usage = typeof words === 'number' ? `, ${words} characters by the gateway's count` : '';
  return `Spoken as ${job.id}${usage}.`;
}

// `mgw tts … -o - | head -c 1`: the reader has closed the pipe on purpose.
function quietIfPipeClosed(outcome: Outcome): Outcome {
  if (!(outcome.error?.cause instanceof ClosedPipe)) return outcome;
  return { json: {}, exitCode: exitCodes.incomplete, silent: true, isRun: true };
}

async function deliverPieces(
  context: Context,
  speech: PreparedSpeech & { joiner: Joiner },
  concurrency = 3,
  wanted: SpeechSubmission,
  deps: FlowDeps,
): Promise<Outcome> {
  const { progress, clock } = context;
  const { stateDir } = await context.settings();
  const total = speech.bodies.length;
  const onPiece = (done: number): void => progress.counting({ what: 'speaking', done, total, of: 'pieces' });
  const begun = clock.monotonic();
  try {
    const pieces = { ...speech, concurrency, stateDir: stateDir.value, onPiece };
    const { jobs, file, reused, delivered } = await speakInPieces(pieces, wanted, deps);
    const files = file === undefined ? [] : [file];
    const cost = await costText(await context.ledger(), jobs, currencyOf(await context.settings()));
    const saved = savedText({ files, ms: clock.monotonic() - begun, cost }) || (cost && `It cost ${cost}.`);
    const kept = reused === 0 ? '' : `, ${reused} of them already paid for`;
    progress.stop();
    progress.note(`Spoken in ${jobs.length === 1 ? 'one piece' : `${jobs.length} pieces`}${kept}. ${saved}`);
    const json = { jobs: jobs.map(jobView), ...(file && { files }) };
    return { json, text: file?.path, paid: 'yes', printed: delivered, isRun: true };
  } catch (thrown) {
    const error = toMgwError(thrown);
    const json = thrown instanceof PiecesError ? { jobs: thrown.jobs.map(jobView) } : {};
    return quietIfPipeClosed({ json, error, isRun: true });
  }
}
