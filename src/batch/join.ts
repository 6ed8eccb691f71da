import { closeSync, fstatSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Deadline } from '../clock.ts';
import { usageError, localError } from '../errors.ts';
import { HashedFile } from '../files/hashed-file.ts';
import type { OutputLock } from '../files/output-lock.ts';
import { checkOutput, publish } from '../files/publish.ts';
import type { WholeFile } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { absoluteOutput, isObjectUrl } from '../store-url.ts';
import type { JobDeps } from '../jobs/order.ts';
import { interruptedError } from '../jobs/errors.ts';
import { bestEffort, lockOutput } from '../jobs/lock-output.ts';
import { isSameOutput, pathExists, pathsAt } from '../jobs/output.ts';
import { type Clip, type Film, makeFilm, planFilm, type Track } from './film.ts';
import { type Batch, type Plan, planBatch, type PlanDeps } from './plan.ts';
import { type PlannedRow, countOf, isSpeech } from './planned-row.ts';
import { pathFor, pathOfTake } from './row-state.ts';

/** The parts of a batch's film. */
export interface JoinPlan {
  plan: Plan;
  /** Every valid row of the manifest. */
  rows: PlannedRow[];
  /** Clips with a finished video, in manifest order. */
  clips: Clip[];
  /** Rows that belong to the film but have no finished file, in manifest order. */
  missing: MissingRow[];
  notes: string[];
}

/** A row without an intact file. */
export interface MissingRow extends PlannedRow {
  /** The path of the row's video, if the video has changed since it was saved. */
  changedFile?: string | undefined;
  /** Whether only a paid retry replaces the row's file: the gateway does not deliver speech twice. */
  needsPaidRetry?: boolean;
}

/** Returns a job's first intact file; undefined if there is none. */
type SavedFile = (job: Job, count: number) => Promise<JobFile | undefined>;

/**
 * Finds a batch's finished videos and the speech laid over them (design 17). Sends nothing.
 * @throws MgwError('usage') if speech is laid over speech.
 */
export async function planJoin(batch: Batch, deps: PlanDeps, savedFile: SavedFile): Promise<JoinPlan> {
  const allRows: PlannedRow[] = [];
  // The command specifies only the film's path. The job records determine where the clips are.
  const plan = await planBatch({ ...batch, force: true }, { ...deps, isAnywhere: true }, (planned) => {
    allRows.push(planned);
  });
  const rows = allRows
    .filter(({ work, row }) => !isSpeech(work) || row.over !== undefined)
    .sort((one, other) => one.row.index - other.row.index);
  const joinPlan: JoinPlan = { plan, rows: allRows, clips: [], missing: [], notes: [] };
  const byId = new Map(rows.map((row) => [row.id, row]));
  const clips = new Map<string, Clip>();
  for (const planned of rows.filter(({ work }) => !isSpeech(work))) {
    const track = await trackOf(planned, savedFile);
    if (track === undefined) joinPlan.missing.push(missingRow(planned));
    else clips.set(planned.id, { ...track, speech: [] });
    if (track !== undefined && countOf(planned.work) > 1)
      joinPlan.notes.push(`${planned.id} has ${countOf(planned.work)} videos. Only the first is used.`);
  }
  for (const planned of rows) {
    const { row, work } = planned;
    if (!isSpeech(work) || row.over === undefined) continue;
    const target = byId.get(row.over);
    if (target === undefined || isSpeech(target.work))
      throw usageError(`line ${row.line}: over: ${row.over} is not a row with a video.`);
    const track = await trackOf(planned, savedFile);
    if (track === undefined) joinPlan.missing.push(missingRow(planned));
    else clips.get(row.over)?.speech.push(track);
  }
  joinPlan.clips = [...clips.values()];
  joinPlan.missing.sort((one, other) => one.row.index - other.row.index);
  return joinPlan;
}

// A row may be recorded as done although its file is missing or changed. The state of a stored object is not changed.
function missingRow(planned: PlannedRow): MissingRow {
  const { state, path, work, take } = planned;
  if (state !== 'done' || take.job === undefined || isObjectUrl(path)) return planned;
  const paths = pathsAt(pathFor(path, take.job), countOf(work));
  return {
    ...planned,
    state: 'running',
    changedFile: paths.find(pathExists),
    needsPaidRetry: isSpeech(work),
  };
}

/** Whether a row's job or one of its earlier takes saved a file at a path, or its command specified that path. */
export function isOutputOf({ work, take: { job, number } }: PlannedRow, output: string): boolean {
  if (job === undefined) return false;
  const { goals, results = 0 } = job.record;
  const count = Math.max(countOf(work), results);
  const requested = goals.flatMap((goal) =>
    takePaths(pathFor(goal.output ?? '-', job), number).flatMap((path) => pathsAt(path, count)),
  );
  return [...job.files.map(({ path }) => path), ...requested].some((path) => isSameOutput(path, output));
}

// Returns the path of a take and, if the path has the take's number, those of the earlier takes.
function takePaths(path: string, number: number): string[] {
  const base = path.replace(/\.\d+(?=(?:\.[^./\\]*)?$)/, '');
  if (number === 1 || pathOfTake(base, number) !== path) return [path];
  return Array.from({ length: number }, (_, index) => (index === 0 ? base : pathOfTake(base, index + 1)));
}

async function trackOf(
  { id, state, work, take: { job } }: PlannedRow,
  savedFile: SavedFile,
): Promise<Track | undefined> {
  if (state !== 'done' || job === undefined) return undefined;
  const file = await savedFile(job, Math.max(countOf(work), job.record.results ?? 0));
  if (file === undefined) return undefined;
  const isRaw = isSpeech(work) && work.format.name === 'pcm';
  const input = isRaw ? ['-f', 's16le', '-ar', String(work.sampleRate), '-ac', '1'] : [];
  return { id, path: absoluteOutput(file.path), file, input };
}

/**
 * Joins clips into a file that appears only when it is complete. Replaces an existing file only if `force` is set.
 * @param pathOf returns the path of a local copy of a result
 * @param onPlan called before ffmpeg starts
 * @throws MgwError('usage') if ffmpeg is missing or fails; exit 8 if another process is still writing the file; exit 10
 * if the file cannot be written; exit 130 after a signal.
 */
export async function joinClips(
  clips: readonly Clip[],
  { path, force, deadline }: { path: string; force: boolean; deadline: Deadline },
  deps: JobDeps,
  pathOf: (file: JobFile) => Promise<string>,
  onPlan: (film: Film) => void,
): Promise<WholeFile & { film: Film }> {
  const signal = deps.signals.soft;
  checkOutput(path, { force });
  try {
    const withLocalPath = async <T extends Track>(track: T): Promise<T> => ({
      ...track,
      path: resolve(await pathOf(track.file)),
    });
    const localClips: Clip[] = [];
    for (const clip of clips) {
      const speech: Track[] = [];
      for (const each of clip.speech) speech.push(await withLocalPath(each));
      localClips.push({ ...(await withLocalPath(clip)), speech });
    }
    const film = await planFilm(localClips, signal);
    onPlan(film);
    const lock = await lockOutput(path, deps, { identity: 'film', deadline });
    try {
      return { ...(await writeFilm(film, lock, force, signal)), film };
    } finally {
      await bestEffort(deps, () => lock.release());
    }
  } catch (error) {
    throw signal.aborted ? interruptedError(signal, undefined, 'no') : error;
  }
}

async function writeFilm(
  film: Film,
  lock: OutputLock,
  force: boolean,
  signal: AbortSignal,
): Promise<WholeFile> {
  const { target } = lock;
  const { path, file } = await lock.createScratch().catch((error: unknown): never => {
    throw localError(error, target, 'no');
  });
  let size: number;
  try {
    await makeFilm(film, path, signal);
    size = fstatSync(file).size;
  } catch (error) {
    closeSync(file);
    throw error;
  }
  const hashed = new HashedFile(path, file, size);
  try {
    const sealed = await hashed.seal();
    await publish(sealed, target, { force, charged: 'no', assertLease: lock.assertLease });
    return { path: target, bytes: sealed.bytes, sha256: sealed.sha256 };
  } finally {
    await hashed.close();
  }
}
