import { dirname } from 'node:path';
import { deadlineIn } from '../clock.ts';
import type { Reply, SubmitVerdict } from '../exchange.ts';
import { localError, messageOf, MgwError } from '../errors.ts';
import { isFolder, makeFolder } from '../files/make-folder.ts';
import { checkLinks } from '../jobs/output.ts';
import type { Delivered } from '../flows/deliver.ts';
import type { FlowDeps } from '../flows/settings.ts';
import { speak } from '../flows/speak.ts';
import { submitVideo } from '../flows/submit-video.ts';
import type { Job } from '../job.ts';
import { isObjectUrl } from '../store-url.ts';
import { readSpeechHead } from '../speech/wire.ts';
import { pacedClient, type Slot } from './paced-client.ts';
import type { Pace } from './pace.ts';
import { type PlannedRow, isSpeech } from './planned-row.ts';

/** Options for running rows. */
export interface RowOptions {
  /** Whether to overwrite outputs. */
  force: boolean;
  /** Whether to write a sidecar next to each file. */
  sidecar: boolean;
  /** Whether to label each file as AI-generated (IPTC trainedAlgorithmicMedia). */
  mark?: boolean | undefined;
  /** The maximum duration of one row, in ms. */
  timeoutMs: number;
  /** Whether an agent started the run. If so, a job in doubt outside the batch blocks a row with the same request. */
  isOfAgent?: boolean;
}

/** The run's pace, the row's slot, and callbacks for the row's payment and for each change of its job. */
export interface RowRun {
  pace: Pace;
  slot: Slot;
  /** Called when the gateway accepts this run's submission, but not if another process submitted the row. */
  onPaid: () => void;
  onUpdate: (job: Job) => void;
}

/**
 * Runs a row like the equivalent `submit` or `tts` command: submits it unless an earlier run did, waits, and saves the
 * result. Releases the row's slot as soon as the gateway has finished the task.
 * @throws MgwError as `submitVideo` and `speak` do.
 */
export async function runRow(
  { work, path, root, take, row }: PlannedRow,
  deps: FlowDeps,
  { force, sidecar, mark, timeoutMs, isOfAgent = false }: RowOptions,
  { pace, slot, onPaid, onUpdate }: RowRun,
): Promise<Delivered> {
  const read = (reply: Reply): SubmitVerdict => {
    const verdict = isSpeech(work)
      ? readSpeechHead(reply, work.body)
      : work.protocol.readSubmission(reply, work.body);
    if (verdict.kind === 'accepted') onPaid();
    return verdict;
  };
  const client = pacedClient(deps.client, pace, slot, deps.signals.soft, read);
  const rowDeps = { ...deps, client, ...(pace.isShared && { onWaitForOther: () => slot.leave() }) };
  const deadline = deadlineIn(timeoutMs, deps.clock);
  const commonOptions = {
    ...{ force, sidecar, mark, fresh: false, deadline, key: take.key, tags: row.tags },
    ...(isOfAgent && { blockedByAnyDoubt: deadline }),
  };
  if (isSpeech(work)) {
    await makeFolderOf(path, root);
    return speak(work, { ...commonOptions, output: path }, rowDeps);
  }
  const update = (job: Job): void => {
    if (job.state === 'succeeded' || job.state === 'failed') slot.leave();
    onUpdate(job);
  };
  const target = { kind: 'file', path } as const;
  return submitVideo(
    work,
    { ...commonOptions, ask: 'file', target, makeFolder: (outputPath) => makeFolderOf(outputPath, root) },
    rowDeps,
    { onAccepted: update, onUpdate: update },
  );
}

// Creates and syncs the folder of a row's file, so that a crash cannot lose the folder together with a result. The
// umask limits the folder's permissions.
async function makeFolderOf(path: string, root: string): Promise<void> {
  if (isObjectUrl(path)) return;
  // Waits a tick, so that rows that start together share one sync.
  await new Promise((resolve) => setImmediate(resolve));
  const folder = dirname(path);
  checkFolder(root, folder);
  if (isFolder(folder)) return;
  await makeFolder(folder, 0o777).catch((error: unknown) => {
    throw localError(error, folder, 'no');
  });
}

// A symbolic link may have been created since the plan was made. This check runs before anything is sent, and again
// before the result is saved.
function checkFolder(root: string, folder: string): void {
  try {
    checkLinks(root, folder);
  } catch (error) {
    const text = `Cannot write the output: ${messageOf(error)}. Remove the link, or use another output.`;
    throw new MgwError('local_io', text, { charged: 'no', retry: 'never' });
  }
}

/**
 * Whether the error concerns only the row's own `output`, for example because the path is a folder or leads through a
 * file or a link.
 */
export function isOwnOutputError(
  { row }: { row: Pick<PlannedRow['row'], 'output'> },
  { code, retry, charged, isOfInput }: MgwError,
): boolean {
  if (row.output === undefined || isOfInput) return false;
  return code === 'local_io' && charged === 'no' && retry === 'never';
}
