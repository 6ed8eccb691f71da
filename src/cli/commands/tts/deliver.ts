import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { deadlineIn } from '../../../clock.ts';
import { exitCodes, MgwError, toMgwError } from '../../../errors.ts';
import type { Job, JobFile } from '../../../job.ts';
import type { JobDeps } from '../../../jobs/deps.ts';
import { fingerprintOf } from '../../../jobs/order.ts';
import { checkSidecarsFree, writeSidecars } from '../../../jobs/sidecar.ts';
import { at, canonicalJson, type Json } from '../../../json.ts';
import { FileSink } from '../../../speech/file-sink.ts';
import { PiecesError } from '../../../speech/pieces-error.ts';
import { joinedPart, type Joiner } from '../../../speech/join.ts';
import { speakPieces } from '../../../speech/pieces.ts';
import { ReaderGone, type AudioSink } from '../../../speech/sink.ts';
import { speak } from '../../../speech/speak.ts';
import { StreamSink } from '../../../speech/stream-sink.ts';
import { payingDeps } from '../../../flows/paying-deps.ts';
import type { Context } from '../../context.ts';
import { jobView } from '../../../jobs/view.ts';
import type { Outcome } from '../../output/outcome.ts';
import { version } from '../../../version.ts';
import { costText, savedText } from '../../output/saved.ts';
import type { PreparedSpeech } from './prepare.ts';
import type { TtsOptions } from './options.ts';

/** Speaks what was prepared, as one job or with `--split` as several, and says where the audio is. */
export async function deliverSpeech(
  context: Context,
  speech: PreparedSpeech,
  options: TtsOptions,
): Promise<Outcome> {
  const { name } = await context.gateway();
  const text = fingerprintOf({ protocol: 'tts', body: speech.bodies }, name);
  const deps = await payingDeps(context, 'command', text, options);
  try {
    if (options.sidecar && speech.target !== undefined)
      await checkSidecarsFree({ kind: 'file', path: speech.target }, 1, options.force ?? false);
    const { joiner } = speech;
    const outcome =
      joiner === undefined
        ? await deliverOne(context, speech, options, deps)
        : await deliverPieces(context, speech, joiner, options, deps);
    return { ...outcome, isRun: true };
  } catch (error) {
    return { ...failed(error), isRun: true };
  } finally {
    context.progress.stop();
  }
}

async function deliverOne(
  context: Context,
  speech: PreparedSpeech,
  options: TtsOptions,
  deps: JobDeps,
): Promise<Outcome> {
  const { progress } = context;
  const settings = await context.settings();
  const order = {
    body: speech.bodies[0] ?? {},
    variant: speech.format.wav ? 'wav' : undefined,
    key: options.key,
    fresh: options.new ?? false,
    output: speech.target ?? '-',
    deadline: deadlineIn(settings.timeoutMs.value, deps.clock),
  };
  const begun = context.clock.monotonic();
  const onAudio = (bytes: number): void => progress.downloading({ bytes });
  const { job, file, isResumed, delivered } = await speak(
    order,
    { ...deps, onAudio },
    sinkFor(context, speech, options),
  );
  if (options.sidecar) await writeSidecars(job, filesOf(file).files ?? [], version);
  progress.stop();
  const saved = await endText(context, [job], file, begun, deps);
  progress.note(
    isResumed
      ? `Job ${job.id} had been paid for already; nothing was sent. ${saved}`
      : spokenText(job, saved),
  );
  return { json: { job: jobView(job), ...filesOf(file) }, text: file?.path, paid: 'yes', printed: delivered };
}

function spokenText(job: Job, saved: string): string {
  const words = at(job.usage as Json, 'text_words');
  const usage = typeof words === 'number' ? `, ${words} characters by the gateway's count` : '';
  return `Spoken as ${job.id}${usage}. ${saved}`;
}

async function endText(
  { clock }: Context,
  jobs: readonly Job[],
  file: JobFile | undefined,
  begun: number,
  { ledger }: JobDeps,
): Promise<string> {
  const cost = await costText(ledger, jobs);
  if (file === undefined) return cost === '' ? '' : `It cost ${cost}.`;
  return savedText({ files: [file], ms: clock.monotonic() - begun, cost });
}

async function deliverPieces(
  context: Context,
  speech: PreparedSpeech,
  join: Joiner,
  options: TtsOptions,
  deps: JobDeps,
): Promise<Outcome> {
  const { progress } = context;
  const { bodies, format } = speech;
  const { timeoutMs, stateDir } = await context.settings();
  const folder = folderFor(speech, stateDir.value);
  const order = {
    bodies,
    fresh: options.new ?? false,
    deadline: deadlineIn(timeoutMs.value, deps.clock),
    concurrency: options.concurrency ?? 3,
    folder,
    mime: format.mime,
    join,
    onPiece: (done: number) =>
      progress.counting({ what: 'speaking', done, total: bodies.length, of: 'pieces' }),
  };
  const sink = sinkFor(context, speech, options, joinedPart(folder, bodies));
  const begun = context.clock.monotonic();
  const { jobs, file, reused, delivered } = await speakPieces(order, deps, sink);
  const kept = reused === 0 ? '' : `, of which ${reused} had been paid for already`;
  const saved = await endText(context, jobs, file, begun, deps);
  progress.stop();
  const pieces = jobs.length === 1 ? 'one piece' : `${jobs.length} pieces`;
  progress.note(`Spoken in ${pieces}${kept}. ${saved}`);
  return {
    json: { jobs: jobs.map(jobView), ...filesOf(file) },
    text: file?.path,
    paid: 'yes',
    printed: delivered,
  };
}

// Next to the output, where a person finds them; what goes to a pipe has no such place.
function folderFor({ target, bodies }: PreparedSpeech, stateDir: string): string {
  if (target !== undefined) return `${target}.pieces`;
  const name = createHash('sha256').update(canonicalJson(bodies)).digest('hex').slice(0, 32);
  return join(stateDir, 'speech', name);
}

function sinkFor(
  context: Context,
  { target, format, sampleRate }: PreparedSpeech,
  options: TtsOptions,
  part?: string,
): AudioSink {
  const wavRate = format.wav ? sampleRate : undefined;
  if (target === undefined) return new StreamSink(context.io.stdout, wavRate);
  return new FileSink({ target, force: options.force ?? false, mime: format.mime, wavRate, part });
}

function filesOf(file: JobFile | undefined): { files?: JobFile[] } {
  return file === undefined ? {} : { files: [file] };
}

function failed(error: unknown): Outcome {
  // `mgw tts … -o - | head -c 1`: the reader has had enough, and wants to hear nothing about it.
  if (error instanceof MgwError && error.cause instanceof ReaderGone)
    return { json: {}, exitCode: exitCodes.incomplete, silent: true };
  if (error instanceof PiecesError) return { json: { jobs: error.jobs.map(jobView) }, error };
  const told = toMgwError(error);
  return { json: told.job ? { job: jobView(told.job) } : {}, error: told };
}
