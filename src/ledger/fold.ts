import { exitCodes } from '../errors.ts';
import {
  isFinal,
  isSameGoal,
  type Goal,
  type Job,
  type JobFile,
  type JobRecord,
  type JobState,
  type Life,
  type RecordedEvent,
} from '../job.ts';
import { absoluteOutput } from '../store-url.ts';

type LifeOf = JobRecord['lifeOf'];

/**
 * Computes a job from the events in its log; `undefined` is a line that could not be read. A job with such a line and
 * no handle is `unknown`, never "not sent", unless the user resolved it after that line (design 4). Returns undefined
 * if the first line is not a readable `prepared`. Calls `lifeOf` at most once for each of the job's processes.
 */
export function foldJob(
  id: string,
  lines: readonly (RecordedEvent | undefined)[],
  lifeOf?: LifeOf,
): Job | undefined {
  const [first, ...laterLines] = lines;
  return first?.type === 'prepared' ? foldFrom(id, first, laterLines, lifeOf) : undefined;
}

/** Computes a job from its `prepared` event and the later lines of its log; see {@link foldJob}. */
export function foldFrom(
  id: string,
  first: RecordedEvent & { type: 'prepared' },
  laterLines: readonly (RecordedEvent | undefined)[],
  lifeOf: LifeOf = () => 'unknown',
): Job {
  const job = newJob(id, first, cachedLifeOf(lifeOf));
  for (const event of laterLines) {
    if (event === undefined) {
      job.record.damaged += 1;
      // The lost line may have recorded the task.
      job.record.isUnconfirmed = undefined;
    } else applyEvent(job, event);
  }
  if (job.handle === undefined && (job.record.damaged > 0 || wasAccepted(job.state))) job.state = 'unknown';
  return job;
}

// Checks each process only once. If a process ended between two checks, its job could be neither joined nor recognized
// as paid for.
function cachedLifeOf(lifeOf: LifeOf): LifeOf {
  const lives = new Map<string, Life>();
  return (owner) => {
    const name = JSON.stringify(owner);
    const life = lives.get(name) ?? lifeOf(owner);
    lives.set(name, life);
    return life;
  };
}

// Whether only an accepted task can have this state. Without a handle, nothing is known about the task.
function wasAccepted(state: JobState): boolean {
  return state !== 'prepared' && state !== 'sending' && state !== 'rejected';
}

function newJob(id: string, first: RecordedEvent & { type: 'prepared' }, lifeOf: LifeOf): Job {
  return {
    id,
    protocol: first.protocol,
    model: first.model,
    key: first.key,
    tags: first.tags,
    state: 'prepared',
    base_url: first.base_url,
    created_at: first.at,
    files: [],
    request: first.request,
    record: {
      fingerprint: first.fingerprint,
      variant: first.variant,
      account: first.account,
      elided: first.elided ?? false,
      endpoint: first.endpoint,
      attempts: 0,
      runs: [],
      goals: [],
      firstFiles: [],
      damaged: 0,
      lifeOf,
    },
  };
}

function applyEvent(job: Job, event: RecordedEvent): void {
  switch (event.type) {
    case 'prepared':
      break;
    case 'began':
    case 'delivered':
    case 'detached':
      applyRun(job, event);
      break;
    case 'sending':
    case 'reply':
    case 'unavailable':
    case 'accepted':
    case 'rejected':
    case 'unknown':
    case 'resolved':
      applySubmission(job, event);
      break;
    case 'observed':
    case 'finished':
      applyObservation(job, event);
      break;
    case 'file':
      addFile(job, { ...event.file, path: absoluteOutput(event.file.path) }, event.instead_of);
      job.fetched_at = event.at;
      break;
    case 'uploading':
      job.record.uploads = [
        ...(job.record.uploads ?? []),
        { url: event.url, id: event.id, since: event.since },
      ];
      break;
    case 'rated':
      job.rating = event.rating;
      job.note = event.note;
      job.rated_at = event.at;
  }
}

function addFile(job: Job, file: JobFile, insteadOf?: string): void {
  const { record } = job;
  if (!record.firstFiles.some(({ path }) => path === file.path))
    record.firstFiles = [...record.firstFiles, file];
  job.files = [...job.files.filter(({ path }) => path !== file.path && path !== insteadOf), file];
}

function applyRun(job: Job, event: RecordedEvent & { type: 'began' | 'delivered' | 'detached' }): void {
  const { record } = job;
  if (event.type === 'began') {
    // Default to `submit`, because mgw 0.1 did not record the command.
    const { run, owner, ask } = event;
    const output =
      event.output === undefined || event.output === '-' ? event.output : absoluteOutput(event.output);
    const command = (event as Partial<Goal>).command ?? 'submit';
    const goal = { command, ask, ...(output !== undefined && { output }) };
    record.runs = [...record.runs, { run, owner, ...goal }];
    const isNewGoal = command === 'submit' && !record.goals.some((each) => isSameGoal(each, goal));
    if (isNewGoal) record.goals = [...record.goals, goal];
    return;
  }
  const endedRun = record.runs.find(({ run }) => run === event.run);
  record.runs = record.runs.filter((run) => run !== endedRun);
  if (endedRun === undefined || (event.type === 'detached' && !isFinalFailure(job, event.exit_code))) return;
  const outcome =
    event.type === 'delivered' ? { deliveredAt: event.at } : { isFailureReported: true as const };
  record.goals = record.goals.map((goal) => (isSameGoal(goal, endedRun) ? { ...goal, ...outcome } : goal));
}

// Whether a run's exit code reports a failure that a later run would report again. A file that could not be written is
// such a failure only if the result is lost.
function isFinalFailure({ state }: Job, exitCode: number): boolean {
  if (exitCode === exitCodes.local) return state === 'failed';
  return exitCode === exitCodes.failed || exitCode === exitCodes.incomplete;
}

type SubmissionEvent = RecordedEvent & {
  type: 'sending' | 'reply' | 'unavailable' | 'accepted' | 'rejected' | 'unknown' | 'resolved';
};

function applySubmission(job: Job, event: SubmissionEvent): void {
  const { record } = job;
  if (isLate(job, event)) return;
  if (event.type === 'reply') {
    record.pendingReply = event.reply;
    return;
  }
  record.pendingReply = undefined;
  record.sender = undefined;
  // Before the correction, runs may have delivered the result of another task, so the same command continues the job.
  if ('instead_of' in event && isCorrection(job, event))
    record.goals = record.goals.map((goal) => ({
      ...goal,
      deliveredAt: undefined,
      isFailureReported: undefined,
    }));
  if (event.type === 'sending') startSending(job, event);
  else if (event.type === 'resolved') applyResolution(job, event);
  else if (event.type === 'accepted') applyAcceptance(job, event);
  else if (job.handle === undefined) endAttempt(job, event);
}

// Whether an event belongs to an earlier attempt. Two processes may settle a dead process's attempt, and the event of
// the slower process must not end the next attempt.
function isLate(job: Job, event: SubmissionEvent): boolean {
  return event.type !== 'sending' && 'attempt' in event && (event.attempt ?? Infinity) < job.record.attempts;
}

function endAttempt(
  job: Job,
  event: SubmissionEvent & { type: 'unavailable' | 'rejected' | 'unknown' },
): void {
  const { hasEarlierDoubt } = job.record;
  // A refused attempt proves nothing about an earlier one.
  const rejected = hasEarlierDoubt ? 'unknown' : 'rejected';
  const stateAfter = { unavailable: 'prepared', rejected, unknown: 'unknown' } as const;
  job.record.attempts = Math.max(job.record.attempts, event.attempt ?? 0);
  const isFailed = event.type !== 'unknown' && hasEarlierDoubt === true;
  job.error = isFailed ? { ...event.error, message: failureInDoubt(event.error.message) } : event.error;
  job.state = stateAfter[event.type];
  if (event.type === 'unknown') job.record.possibleHandle = event.handle ?? job.record.possibleHandle;
}

/** Returns the message of an attempt that failed although an earlier attempt is still in doubt. */
export function failureInDoubt(message: string): string {
  return `An earlier attempt is in doubt; the new attempt failed: ${message}`;
}

function startSending(job: Job, event: RecordedEvent & { type: 'sending' }): void {
  job.record.attempts = Math.max(job.record.attempts, event.attempt);
  job.record.sender = event.owner;
  job.record.sentBy = event.owner;
  job.submitted_at = event.at;
  job.cost = event.cost;
  job.error = undefined;
  if (job.handle === undefined) job.state = 'sending';
}

// The first handle takes precedence: if the user chose to send the job again, the second task does not silently replace
// the first. A handle can be corrected only if the gateway has never returned its task.
function applyAcceptance(job: Job, event: RecordedEvent & { type: 'accepted' }): void {
  if (job.handle !== undefined && !isCorrection(job, event)) return;
  job.handle = event.handle;
  job.record.isUnconfirmed = event.adopted;
  job.record.possibleHandle = undefined;
  job.record.hasEarlierDoubt = undefined;
  job.native_status = event.native_status;
  job.error = undefined;
  if (!isFinal(job.state) || job.state === 'rejected') job.state = 'queued';
}

function isCorrection({ handle, record }: Job, event: { instead_of?: string }): boolean {
  return record.isUnconfirmed === true && event.instead_of === handle;
}

function applyResolution(job: Job, event: RecordedEvent & { type: 'resolved' }): void {
  const { how, attempt = 0 } = event;
  job.record.attempts = Math.max(job.record.attempts, attempt);
  if (how === 'adopted' || (job.handle !== undefined && !isCorrection(job, event))) return;
  job.handle = undefined;
  job.record.isUnconfirmed = undefined;
  if (how === 'resubmit') {
    job.state = 'prepared';
    job.record.hasEarlierDoubt = true;
  } else {
    job.state = 'rejected';
    job.record.hasEarlierDoubt = undefined;
    job.record.possibleHandle = undefined;
    job.error = { code: 'invalid_request', message: 'The user resolved this job as not created.' };
  }
  job.record.damaged = 0;
}

// A success is never undone (design 6). A failure is undone only by a response that the gateway gave later, and not by
// the earlier response of a process that recorded it late.
function applyObservation(job: Job, event: RecordedEvent & { type: 'observed' | 'finished' }): void {
  if (job.state === 'succeeded') return;
  if (job.state === 'failed' && event.type === 'observed' && event.revokes !== true) return;
  job.record.isUnconfirmed = undefined;
  job.state = event.state;
  job.native_status = event.native_status;
  job.progress = event.progress;
  job.error = undefined;
  job.finished_at = undefined;
  if (event.type === 'observed') return;
  job.finished_at = event.at;
  job.error = event.error;
  job.record.results = event.results;
  job.usage = event.usage;
  job.details = event.details;
}
