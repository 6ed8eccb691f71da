import { createHash, randomUUID } from 'node:crypto';
import { extname, join } from 'node:path';
import type { Writable } from 'node:stream';
import type { Deadline } from '../clock.ts';
import { usageError } from '../errors.ts';
import { fingerprintOf } from '../jobs/order.ts';
import { stdoutText } from '../jobs/mark.ts';
import { checkSidecarsFree, writeSidecars } from '../jobs/receipt.ts';
import { numberedPath, outputOf } from '../jobs/output.ts';
import type { JobFile } from '../job.ts';
import { canonicalJson, type JsonObject } from '../json.ts';
import { isObjectUrl, sidecarMessage } from '../store-url.ts';
import { FileSink } from '../speech/file-sink.ts';
import type { ComposedSpeech } from '../speech/compose.ts';
import { joinedPart, type Joiner } from '../speech/containers.ts';
import { speakPieces, type SpokenPieces } from '../speech/pieces.ts';
import { type AudioSink, type SavedAudio, StreamSink } from '../speech/sink.ts';
import { speak as speakOnce } from '../speech/speak.ts';
import type { SpeechDeps } from '../speech/audio-stream.ts';
import { version } from '../installation.ts';
import { withBudget } from './budgets.ts';
import type { Delivered } from './deliver.ts';
import type { FlowDeps } from './settings.ts';

type AudioOptions = Pick<ComposedSpeech, 'format' | 'sampleRate'>;

/** Options for paid speech. */
export interface SpeechSubmission {
  /** An absolute path, `s3://BUCKET/KEY`, or the stream that receives the audio as it arrives. */
  output: string | Writable;
  /** Whether to overwrite the output. */
  force: boolean;
  /** Whether to write a sidecar next to the file. */
  sidecar: boolean;
  /** Whether to mark an MP3 as AI-generated. */
  mark?: boolean | undefined;
  /** Whether to pay for a new take even if the same request was paid for before. */
  fresh: boolean;
  /**
   * If set, a job in doubt under any key blocks the submission. If that job is still being sent, the submission first
   * waits for it until this deadline.
   */
  blockedByAnyDoubt?: Deadline;
  deadline: Deadline;
  /** A key that permanently names the job. */
  key?: string | undefined;
  /** Words for finding the job later. */
  tags?: string[] | undefined;
  /** The maximum that all runs with this text may spend in total, as an exact decimal. */
  budget?: string | undefined;
}

/**
 * Speaks text with one paid call, or delivers the audio that an earlier or concurrent run of the same order paid for
 * (design 8).
 * @throws MgwError as `submitVideo` does; exit 5 for an error frame, 9 for a stream without an end frame.
 */
export async function speak(
  { body, userBody = body, variant, format, sampleRate }: ComposedSpeech,
  submission: SpeechSubmission,
  baseDeps: FlowDeps & SpeechDeps,
): Promise<Delivered> {
  const options = withNumber(submission);
  const { output, force, sidecar, fresh, blockedByAnyDoubt, deadline, key, tags } = options;
  const deps = await withSpeechBudget([userBody], options, baseDeps);
  const path = typeof output === 'string' ? output : '-';
  if (sidecar && isObjectUrl(path)) throw usageError(sidecarMessage);
  if (sidecar) await checkSidecarsFree({ kind: 'file', path }, 1, force);
  const order = { body, userBody, fresh, blockedByAnyDoubt, output: path, deadline, key, tags, variant };
  const isObject = isObjectUrl(path);
  const sink = isObject
    ? await objectSink({ format, sampleRate }, userBody, path, options, deps)
    : sinkOf({ format, sampleRate }, options, deps);
  const { file, ...delivery } = await speakOnce(order, deps, withObjects(sink, deps, deadline));
  if (file !== undefined && isObject) return uploadSpeech(file, path, sink, options, delivery, deps);
  const files = file === undefined ? [] : [file];
  if (sidecar) await writeSidecars(delivery.job, files, version, force);
  return { ...delivery, files };
}

// Replaces `{n}` in the output with 1, because speech is one file.
function withNumber<Options extends Pick<SpeechSubmission, 'output'>>(options: Options): Options {
  const { output } = options;
  return typeof output === 'string' ? { ...options, output: numberedPath(output, 0, 1) } : options;
}

/**
 * Returns a sink that can also recover speech that exists only as an object in the store, and skips files that must not
 * be used.
 */
export function withObjects<Sink extends AudioSink>(sink: Sink, deps: FlowDeps, deadline: Deadline): Sink {
  const recover = sink.recover.bind(sink);
  sink.recover = async (candidates) => {
    const refusals: unknown[] = [];
    const allowed: SavedAudio[] = [];
    for (const each of candidates)
      await Promise.resolve(isObjectUrl(each.path) || deps.checkFile?.(each.path, 'the saved audio')).then(
        () => allowed.push(each),
        (error: unknown) => refusals.push(error),
      );
    let recovered = await recover(allowed);
    if (recovered === undefined && allowed.some(({ path }) => isObjectUrl(path)))
      recovered = await (await import('./local-copies.ts')).recoverObject(allowed, recover, deps, deadline);
    if (recovered === undefined && refusals.length > 0) throw refusals[0];
    return recovered;
  };
  return sink;
}

// Names the local file after the order, so that a rerun finds the file of an earlier run.
async function objectSink(
  { format, sampleRate }: AudioOptions,
  body: JsonObject,
  url: string,
  { force, fresh, key, mark }: SpeechSubmission,
  deps: FlowDeps,
): Promise<AudioSink> {
  const { ObjectSink, localPath } = await import('./object-output.ts');
  const order = [canonicalJson(body), key ?? '', fresh ? randomUUID() : '', url].join('\n');
  const name = createHash('sha256').update(order).digest('hex').slice(0, 12);
  const target = await localPath(`tts-${name}${extname(url)}`, deps);
  const wavRate = format.wav ? sampleRate : undefined;
  const options = { target, mime: format.mime, wavRate, mark: mark ? deps.note : undefined };
  return new ObjectSink(url, force, deps, options);
}

async function uploadSpeech(
  file: JobFile,
  url: string,
  { target = '' }: AudioSink,
  options: SpeechSubmission,
  delivery: Omit<Delivered, 'files'>,
  deps: FlowDeps,
): Promise<Delivered> {
  const { removeUploadedSpeech, upload } = await import('./object-output.ts');
  const object = isObjectUrl(file.path)
    ? file
    : await upload(delivery.job, file, outputOf(url, delivery.job.id), options, deps);
  await removeUploadedSpeech(delivery.job, object, target, deps);
  return { ...delivery, job: (await deps.ledger.read(delivery.job.id)) ?? delivery.job, files: [object] };
}

/** Long text split into pieces, with one call per piece, and how to join the audio. */
export interface ComposedPieces extends AudioOptions {
  bodies: readonly JsonObject[];
  /** The bodies without the configured defaults. Default: `bodies`. */
  userBodies?: readonly JsonObject[] | undefined;
  joiner: Joiner;
  /** Maximum number of concurrent calls. */
  concurrency: number;
  /** Absolute path of the folder that holds the pieces if the output is a stream. */
  stateDir: string;
  /** Called with the number of complete pieces. */
  onPiece?: (done: number) => void;
}

/**
 * Speaks long text in pieces and joins their audio. A repeated call pays only for missing pieces.
 * @throws PiecesError, MgwError.
 */
export async function speakInPieces(
  pieces: ComposedPieces,
  submission: Omit<SpeechSubmission, 'sidecar' | 'key' | 'tags'>,
  baseDeps: FlowDeps & SpeechDeps,
): Promise<SpokenPieces> {
  const options = withNumber(submission);
  const { bodies, userBodies = bodies, joiner: join, format, concurrency, onPiece } = pieces;
  const deps = await withSpeechBudget(userBodies, options, baseDeps);
  const folder = piecesFolder(pieces, options);
  const { fresh, deadline } = options;
  const order = {
    bodies,
    userBodies,
    fresh,
    deadline,
    concurrency,
    folder,
    mime: format.mime,
    join,
    onPiece,
  };
  return speakPieces(order, deps, sinkOf(pieces, options, deps, joinedPart(folder, bodies)));
}

// All pieces share one budget.
function withSpeechBudget(
  bodies: readonly JsonObject[],
  { budget }: Pick<SpeechSubmission, 'budget'>,
  deps: FlowDeps & SpeechDeps,
): Promise<FlowDeps & SpeechDeps> {
  return withBudget(
    deps,
    'command',
    fingerprintOf({ protocol: 'tts', body: [...bodies] }, deps.gateway),
    budget,
  );
}

// Returns the folder for the pieces: next to an output file, or in the state folder if the output is a stream.
function piecesFolder(
  { bodies, stateDir }: ComposedPieces,
  { output }: Pick<SpeechSubmission, 'output'>,
): string {
  if (typeof output === 'string') return `${output}.pieces`;
  const name = createHash('sha256')
    .update(canonicalJson([...bodies]))
    .digest('hex')
    .slice(0, 32);
  return join(stateDir, 'speech', name);
}

function sinkOf(
  { format, sampleRate }: AudioOptions,
  { output, force, mark }: Pick<SpeechSubmission, 'output' | 'force' | 'mark'>,
  { note }: FlowDeps,
  part?: string,
): AudioSink {
  const wavRate = format.wav ? sampleRate : undefined;
  if (typeof output === 'string')
    return new FileSink({
      target: output,
      force,
      mime: format.mime,
      wavRate,
      part,
      mark: mark ? note : undefined,
    });
  if (mark) note(stdoutText);
  return new StreamSink(output, wavRate);
}
