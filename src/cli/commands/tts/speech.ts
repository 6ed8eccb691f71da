import type { Context } from '../../context.ts';
import { readInputFile, typedText } from '../../input.ts';
import { decodeUtf8, readStdin } from '../../io.ts';
import type { BudgetOptions } from '../../options.ts';
import { type OutputOptions, targetOf } from '../../wait-options.ts';
import { usageError, exitCodes, MgwError, toMgwError } from '../../../errors.ts';
import { at, type JsonObject, type Json } from '../../../json.ts';
import { type ComposedSpeech, composeSpeech } from '../../../speech/compose.ts';
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

/** A speech request that was composed and checked, but not sent. */
export interface PreparedSpeech extends Omit<ComposedSpeech, 'body' | 'userBody'> {
  /** The bodies of the calls: one, or several with `--split`. */
  bodies: JsonObject[];
  /** The bodies without the configured defaults. */
  userBodies: JsonObject[];
  /** The absolute path of the output; undefined for standard output. */
  target: string | undefined;
  /** With `--split`: joins the audio of all calls. */
  joiner?: Joiner;
}

const defaultPieceLength = 1000;

/**
 * Composes a speech request from text, flags and settings, and checks it.
 * @throws MgwError('usage') naming every invalid flag or field.
 */
export async function prepareSpeech(
  context: Context,
  textArgument: string | undefined,
  options: TtsOptions,
): Promise<PreparedSpeech> {
  checkSplit(options);
  if (textArgument === undefined && options.file === undefined)
    throw usageError('No text. Use TEXT, --file FILE, or - for standard input.');
  const settings = await context.settings();
  const target = outputOf(options);
  const text = await textOf(context, textArgument, options);
  const {
    body,
    userBody = body,
    advice,
    ...composed
  } = composeSpeech(
    text,
    target,
    { ...options, isFromFile: options.file !== undefined && options.file !== '-' },
    settings,
  );
  for (const note of advice) context.progress.note(note);
  if (!options.split) return { bodies: [body], userBodies: [userBody], ...composed, target };
  if (at(body, 'req_params.ssml') !== undefined)
    throw usageError('--split cannot split req_params.ssml: every piece would speak all of it.');
  const { format } = composed;
  const joiner = joinerFor(format.wire);
  if (joiner === undefined)
    throw usageError(`--split cannot join ${format.name}. Use mp3, wav, pcm or ogg_opus.`);
  const [bodies, userBodies] = [piecesOf(body, options), piecesOf(userBody, options)];
  return { bodies, userBodies, ...composed, target, joiner };
}

function checkSplit(options: TtsOptions): void {
  if (options.split && isObjectUrl(options.output ?? ''))
    throw usageError('--split requires a local file as --output.');
  const { split, key, pieceLength, concurrency, sidecar } = options;
  if (split && sidecar)
    throw usageError('--sidecar cannot be combined with --split, which creates several jobs.');
  if (split && key !== undefined)
    throw usageError(
      '--key cannot be combined with --split, which creates several jobs. A rerun pays only for missing pieces.',
    );
  const strayFlag =
    pieceLength !== undefined ? '--piece-length' : concurrency !== undefined ? '--concurrency' : '';
  if (!split && strayFlag !== '') throw usageError(`${strayFlag} requires --split.`);
}

function outputOf(options: TtsOptions): string | undefined {
  const target = targetOf(options);
  if (target === undefined) {
    const { format = 'mp3' } = options;
    const lacks = ['-o', `speech.${format === 'ogg_opus' ? 'ogg' : format}`];
    const message = 'No output. Save a file with -o FILE, or write to standard output with -o -.';
    throw new MgwError('usage', message, { lacks });
  }
  if (/[\\/]$/.test(options.output ?? '')) throw usageError('--output must be a file, not a folder.');
  return target.kind === 'stdout' ? undefined : absoluteOutput(target.path);
}

async function textOf(
  context: Context,
  textArgument: string | undefined,
  options: TtsOptions,
): Promise<string> {
  const { file } = options;
  if (textArgument !== undefined && file !== undefined)
    throw usageError('TEXT cannot be combined with --file.');
  if (textArgument !== undefined && textArgument !== '-') return typedText(textArgument, '--file');
  const text =
    textArgument === '-' || file === '-'
      ? await readStdin(context.io, await context.deadline())
      : decodeUtf8(await readInputFile(file ?? '', '--file'), `--file ${file}`);
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

/** Speaks prepared text as one job, or as several with `--split`, and prints the audio file's path. */
export async function deliverSpeech(
  context: Context,
  speech: PreparedSpeech,
  options: TtsOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, mark, budget, concurrency } = options;
  const [deps, deadline] = await Promise.all([context.jobDeps(), context.deadline()]);
  const output = speech.target ?? context.io.stdout;
  const submission = { output, force, sidecar, mark, fresh, deadline, key, budget };
  const { bodies, userBodies, joiner, ...composed } = speech;
  try {
    if (joiner !== undefined)
      return await deliverPieces(context, { ...speech, joiner }, concurrency, submission, deps);
    const [[body = {}], [userBody]] = [bodies, userBodies];
    const onAudio = (bytes: number): void => context.progress.downloading({ bytes });
    const run = (): Promise<Delivered> =>
      speak({ ...composed, body, userBody }, submission, { ...deps, onAudio }).finally(() =>
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

// In `mgw tts … -o - | head -c 1`, the reader closes the pipe on purpose.
function quietIfPipeClosed(outcome: Outcome): Outcome {
  if (!(outcome.error?.cause instanceof ClosedPipe)) return outcome;
  return { json: {}, exitCode: exitCodes.incomplete, silent: true };
}

async function deliverPieces(
  context: Context,
  speech: PreparedSpeech & { joiner: Joiner },
  concurrency = 3,
  submission: SpeechSubmission,
  deps: FlowDeps,
): Promise<Outcome> {
  const { progress, clock } = context;
  const { stateDir } = await context.settings();
  const total = speech.bodies.length;
  const onPiece = (done: number): void =>
    progress.counting({ activity: 'speaking', done, total, unit: 'pieces' });
  const startMs = clock.monotonic();
  try {
    const pieces = { ...speech, concurrency, stateDir: stateDir.value, onPiece };
    const { jobs, file, reused, delivered } = await speakInPieces(pieces, submission, deps);
    const files = file === undefined ? [] : [file];
    const cost = await costText(await context.ledger(), jobs, currencyOf(await context.settings()));
    const saved = savedText({ files, ms: clock.monotonic() - startMs, cost }) || (cost && `It cost ${cost}.`);
    const reuseText = reused === 0 ? '' : `, ${reused} of them already paid for`;
    progress.stop();
    progress.note(
      `Spoken in ${jobs.length === 1 ? 'one piece' : `${jobs.length} pieces`}${reuseText}. ${saved}`,
    );
    const json = { jobs: jobs.map(jobView), ...(file && { files }) };
    return { json, text: file?.path, paid: 'yes', onPrinted: delivered };
  } catch (thrown) {
    const error = toMgwError(thrown);
    const json = thrown instanceof PiecesError ? { jobs: thrown.jobs.map(jobView) } : {};
    return quietIfPipeClosed({ json, error });
  }
}
