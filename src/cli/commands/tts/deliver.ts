import { exitCodes, toMgwError } from '../../../errors.ts';
import type { Delivered } from '../../../flows/deliver.ts';
import type { FlowDeps } from '../../../flows/settings.ts';
import { speak, speakInPieces, type SpeechSubmission } from '../../../flows/speak.ts';
import { jobView } from '../../../jobs/view.ts';
import { at, type Json } from '../../../json.ts';
import { PiecesError } from '../../../speech/errors.ts';
import type { Joiner } from '../../../speech/containers.ts';
import { ClosedPipe } from '../../../speech/sink.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { costText, savedText, deliveredOutcome } from '../video/delivered.ts';
import { currencyOf } from '../../../flows/prices.ts';
import type { PreparedSpeech, TtsOptions } from './prepare.ts';

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
  if (isResumed) return `Job ${job.id} had been paid for already; nothing was sent.`;
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
