import { deadlineIn } from '../../../clock.ts';
import { exitCodes, MgwError, toMgwError } from '../../../errors.ts';
import type { FlowDeps } from '../../../flows/flow-deps.ts';
import { speak, speakInPieces, type WantedSpeech } from '../../../flows/speak.ts';
import type { Job, JobFile } from '../../../job.ts';
import { jobView } from '../../../jobs/view.ts';
import { at, type Json } from '../../../json.ts';
import { PiecesError } from '../../../speech/pieces-error.ts';
import type { Joiner } from '../../../speech/containers.ts';
import { ReaderGone } from '../../../speech/sink.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { costText, savedText } from '../../output/saved.ts';
import type { PreparedSpeech } from './prepare.ts';
import type { TtsOptions } from './tts.ts';

/** Speaks what was prepared, as one job or with `--split` as several, and says where the audio is. */
export async function deliverSpeech(
  context: Context,
  speech: PreparedSpeech,
  options: TtsOptions,
): Promise<Outcome> {
  const { key, new: fresh = false, force = false, sidecar = false, budget } = options;
  const [deps, { timeoutMs }] = await Promise.all([context.jobDeps(), context.settings()]);
  const output = speech.target ?? context.io.stdout;
  const deadline = deadlineIn(timeoutMs.value, deps.clock);
  const wanted = { output, force, sidecar, fresh, deadline, key, budget };
  try {
    const { joiner } = speech;
    const outcome =
      joiner === undefined
        ? await deliverOne(context, speech, wanted, deps)
        : await deliverPieces(context, { ...speech, joiner }, options.concurrency, wanted, deps);
    return { ...outcome, isRun: true };
  } catch (error) {
    return { ...failed(error), isRun: true };
  } finally {
    context.progress.stop();
  }
}

async function deliverOne(
  context: Context,
  { bodies: [body = {}], format, sampleRate }: PreparedSpeech,
  wanted: WantedSpeech,
  deps: FlowDeps,
): Promise<Outcome> {
  const { progress, clock } = context;
  const begun = clock.monotonic();
  const onAudio = (bytes: number): void => progress.downloading({ bytes });
  const spoken = await speak({ body, format, sampleRate }, wanted, { ...deps, onAudio });
  const { job, files, isResumed, delivered } = spoken;
  progress.stop();
  const saved = await endText(context, [job], files[0], clock.monotonic() - begun);
  progress.note(
    isResumed
      ? `Job ${job.id} had been paid for already; nothing was sent. ${saved}`
      : spokenText(job, saved),
  );
  return {
    json: { job: jobView(job), ...filesOf(files[0]) },
    text: files[0]?.path,
    paid: 'yes',
    printed: delivered,
  };
}

function spokenText(job: Job, saved: string): string {
  const words = at(job.usage as Json, 'text_words');
  const usage = typeof words === 'number' ? `, ${words} characters by the gateway's count` : '';
  return `Spoken as ${job.id}${usage}. ${saved}`;
}

async function endText(
  context: Context,
  jobs: readonly Job[],
  file: JobFile | undefined,
  ms: number,
): Promise<string> {
  const cost = await costText(await context.ledger(), jobs);
  if (file === undefined) return cost === '' ? '' : `It cost ${cost}.`;
  return savedText({ files: [file], ms, cost });
}

async function deliverPieces(
  context: Context,
  speech: PreparedSpeech & { joiner: Joiner },
  concurrency = 3,
  wanted: WantedSpeech,
  deps: FlowDeps,
): Promise<Outcome> {
  const { progress, clock } = context;
  const { stateDir } = await context.settings();
  const total = speech.bodies.length;
  const onPiece = (done: number): void => progress.counting({ what: 'speaking', done, total, of: 'pieces' });
  const begun = clock.monotonic();
  const pieces = { ...speech, concurrency, stateDir: stateDir.value, onPiece };
  const { jobs, file, reused, delivered } = await speakInPieces(pieces, wanted, deps);
  const kept = reused === 0 ? '' : `, of which ${reused} had been paid for already`;
  const saved = await endText(context, jobs, file, clock.monotonic() - begun);
  progress.stop();
  progress.note(`Spoken in ${jobs.length === 1 ? 'one piece' : `${jobs.length} pieces`}${kept}. ${saved}`);
  const json = { jobs: jobs.map(jobView), ...filesOf(file) };
  return { json, text: file?.path, paid: 'yes', printed: delivered };
}

function filesOf(file: JobFile | undefined): { files?: JobFile[] } {
  return file === undefined ? {} : { files: [file] };
}

function failed(error: unknown): Outcome {
  // `mgw tts … -o - | head -c 1`: the reader has closed the pipe on purpose.
  if (error instanceof MgwError && error.cause instanceof ReaderGone)
    return { json: {}, exitCode: exitCodes.incomplete, silent: true };
  if (error instanceof PiecesError) return { json: { jobs: error.jobs.map(jobView) }, error };
  const { job } = toMgwError(error);
  return { json: job ? { job: jobView(job) } : {}, error: toMgwError(error) };
}
