import { dirname } from 'node:path';
import { deadlineIn, type Deadline } from '../clock.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import { localError } from '../files/local-error.ts';
import type { Goal, Job, JobFile } from '../job.ts';
import { isFolder, makeFolder } from '../files/make-folder.ts';
import { createOrResume } from '../jobs/create-or-resume.ts';
import { deliver } from '../jobs/deliver.ts';
import type { JobDeps } from '../jobs/deps.ts';
import { checkTargetFree } from '../jobs/fetch.ts';
import type { Order } from '../jobs/order.ts';
import { inRun, type Ran } from '../jobs/run.ts';
import { checkSidecarsFree, writeSidecars } from '../jobs/sidecar.ts';
import { submit } from '../jobs/submit.ts';
import { FileSink } from '../speech/file-sink.ts';
import { speak } from '../speech/speak.ts';
import { readSpeechHead } from '../speech/wire.ts';
import { pacedClient, type Seat } from './paced-client.ts';
import type { Pace } from './pace.ts';
import type { PlannedRow } from './planned-row.ts';
import { pathFor } from './row-state.ts';
import { countOf, isSpeech, submissionOf, type SpeechWork, type VideoWork } from './work.ts';

/** How the rows of a run are carried out. */
export interface RowOptions {
  /** Replaces what stands where a file goes. */
  force: boolean;
  /** Tells next to each file where it came from; `version` is mgw's own. */
  sidecar: boolean;
  version: string;
  /** How long one row may take, ms. */
  timeoutMs: number;
  /** The least pause between two polls of one job, ms. */
  intervalMs: number;
  /** The API key, for result addresses on the gateway's own site. */
  key: string;
  trustedOrigins: readonly string[];
}

/** A row's way through the gateway: its place, and who is told of its job. */
export interface RowRun {
  pace: Pace;
  seat: Seat;
  onUpdate: (job: Job) => void;
}

/** A row that has its file. */
export type RowDone = Ran<JobFile[]>;

/**
 * Carries a row out as its single command would: submits it where no earlier run did, waits, and saves. Its place is
 * given up as soon as the gateway has no more to do for it.
 * @throws MgwError as `submit`, `deliver` and `speak` do.
 */
export async function carryOut(
  planned: PlannedRow,
  deps: JobDeps,
  options: RowOptions,
  run: RowRun,
): Promise<RowDone> {
  const { work } = planned;
  const deadline = deadlineIn(options.timeoutMs, deps.clock);
  const read = isSpeech(work)
    ? readSpeechHead
    : (reply: Reply): SubmitVerdict => work.protocol.readSubmission(reply, work.body);
  const client = pacedClient(deps.client, run.pace, run.seat, deps.signals.soft, read);
  const own = { ...deps, client };
  const done = isSpeech(work)
    ? await spoken(work, planned, own, options, deadline)
    : await rendered(work, planned, own, options, run, deadline);
  if (options.sidecar) await writeSidecars(done.job, done.value, options.version);
  return done;
}

function rendered(
  work: VideoWork,
  planned: PlannedRow,
  deps: JobDeps,
  options: RowOptions,
  { seat, onUpdate }: RowRun,
  deadline: Deadline,
): Promise<RowDone> {
  const { protocol, body, exchange } = work;
  const { path } = planned;
  const goal: Goal = { command: 'submit', ask: 'file', output: path };
  const order: Order = {
    ...submissionOf(work),
    model: protocol.modelOf(body),
    exchange,
    auth: protocol.auth,
    read: (reply) => protocol.readSubmission(reply, body),
    key: planned.take.key,
    tags: planned.row.tags,
    fresh: false,
    goal,
    deadline,
    beforeSending: () => prepareTarget(path, countOf(work), options),
  };
  const begin = (began: Parameters<typeof createOrResume>[2]): Promise<Job> =>
    createOrResume(order, deps, began);
  return inRun(goal, deps, begin, async (found, own) => {
    const { job, isResumed } = await submit(found, order, own);
    const update = (seen: Job): void => {
      if (seen.state === 'succeeded' || seen.state === 'failed') seat.leave();
      onUpdate(seen);
    };
    update(job);
    const target = pathFor(path, job);
    await makeFolderOf(target);
    return deliver(job, protocol, own, {
      ask: 'file',
      target: { kind: 'file', path: target },
      force: options.force,
      deadline,
      atOnce: isResumed,
      intervalMs: options.intervalMs,
      onUpdate: update,
      key: options.key,
      trustedOrigins: options.trustedOrigins,
      toStdout: () => Promise.resolve(),
    });
  });
}

async function spoken(
  work: SpeechWork,
  { path, take, row }: PlannedRow,
  deps: JobDeps,
  { force, sidecar }: RowOptions,
  deadline: Deadline,
): Promise<RowDone> {
  const { format, sampleRate, body } = work;
  await makeFolderOf(path);
  if (sidecar) await checkSidecarsFree({ kind: 'file', path }, 1, force);
  const wavRate = format.wav ? sampleRate : undefined;
  const sink = new FileSink({ target: path, force, mime: format.mime, wavRate });
  const { variant } = submissionOf(work);
  const order = { body, variant, key: take.key, tags: row.tags, fresh: false, output: path, deadline };
  const { job, file, delivered } = await speak(order, deps, sink);
  return { value: file === undefined ? [] : [file], job, delivered };
}

// A name with the job's id in it is nobody else's.
async function prepareTarget(path: string, count: number, { force, sidecar }: RowOptions): Promise<void> {
  if (path.includes('{job}')) return;
  // Rows that begin together go on together, and share their syncs.
  await new Promise((resolve) => setImmediate(resolve));
  await makeFolderOf(path);
  const target = { kind: 'file', path } as const;
  checkTargetFree(target, count, force);
  if (sidecar) await checkSidecarsFree(target, count, force);
}

// The folder of an output, for everybody whom the user's umask lets in. A result must not be lost with its name.
async function makeFolderOf(path: string): Promise<void> {
  const folder = dirname(path);
  if (isFolder(folder)) return;
  await makeFolder(folder, 0o777).catch((error: unknown) => {
    throw localError(error, folder, 'no');
  });
}
