/** The three video protocols of the gateway (specification, introduction). */
export type ProtocolName = 'a' | 'b' | 'c';

/** What a job is about: a video protocol, or speech. */
export type JobKind = ProtocolName | 'tts';

/** Where a job stands (design 2). */
export type JobState =
  'prepared' | 'sending' | 'unknown' | 'queued' | 'running' | 'succeeded' | 'failed' | 'rejected';

/** A file that holds a job's result. */
export interface JobFile {
  /** Absolute path. */
  path: string;
  bytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  mime?: string;
}

/** What went wrong with a job, in the gateway's own words. */
export interface JobError {
  code: string;
  message: string;
  native_code?: string;
}

/** The process that carries a run out; it is alive only where pid and start both match on this host. */
export interface Owner {
  pid: number;
  /** The process's start in the system's own terms, or '' where the system does not tell. */
  start: string;
  host: string;
}

/** How much a run was asked to deliver, in rising order. */
export type Ask = 'accept' | 'finish' | 'file';

/** An answer as it was received, recorded before it is read. The key is redacted from it. */
export interface RecordedReply {
  status: number;
  headers: Record<string, string>;
  text: string;
  complete: boolean;
}

/** A line of a job's log. The job is the fold of its lines (design 4). */
export type JobEvent =
  | {
      type: 'prepared';
      protocol: JobKind;
      base_url: string;
      /** Hash of base URL, account, protocol and canonical body, or '' for an imported job. */
      fingerprint: string;
      /** Keyed hash of the API key; never the key. */
      account: string;
      model?: string;
      key?: string;
      request?: unknown;
      /** True where the body was too large to record: it cannot be sent again from the record. */
      elided?: boolean;
    }
  /** A process takes the job on; `run` names it in the events that follow. */
  | { type: 'began'; run: string; owner: Owner; ask: Ask }
  | { type: 'sending'; attempt: number; owner: Owner }
  | { type: 'reply'; attempt: number; reply: RecordedReply }
  /** The attempt is known not to have been handled; the next one may be made. */
  | { type: 'refused'; attempt: number; error: JobError }
  | { type: 'accepted'; handle: string; native_status?: string; warning?: string }
  | { type: 'rejected'; error: JobError }
  /** Nothing tells whether the task exists. */
  | { type: 'lost'; error: JobError }
  | { type: 'observed'; state: JobState; native_status: string; progress?: number }
  | {
      type: 'finished';
      state: 'succeeded' | 'failed';
      native_status: string;
      error?: JobError;
      /** How many files there are to fetch. */
      results?: number;
      usage?: unknown;
      details?: unknown;
    }
  | { type: 'file'; file: JobFile }
  /** The run got what it was asked for. */
  | { type: 'delivered'; run: string; ask: Ask }
  /** The run ended before that. */
  | { type: 'detached'; run: string; exit_code: number }
  /** A person decided what became of a lost submission. */
  | { type: 'resolved'; how: 'adopted' | 'not-created' | 'resubmit' };

/** An event with the time it was recorded, ISO 8601 in UTC. */
export type RecordedEvent = JobEvent & { at: string };

/** A job as the fold of its events; the snake-case members are those of `--json` (design 2). */
export interface Job {
  id: string;
  protocol: JobKind;
  model?: string;
  key?: string;
  handle?: string;
  state: JobState;
  native_status?: string;
  progress?: number;
  error?: JobError;
  base_url: string;
  created_at: string;
  submitted_at?: string;
  finished_at?: string;
  fetched_at?: string;
  files: JobFile[];
  request?: unknown;
  usage?: unknown;
  details?: unknown;
  /** What the ledger knows beside what `--json` shows. */
  record: JobRecord;
}

/** The bookkeeping of a job that is not shown to users. */
export interface JobRecord {
  fingerprint: string;
  account: string;
  elided: boolean;
  /** Attempts to send so far. */
  attempts: number;
  /** The process that is sending, while state is `sending`. */
  sender?: Owner;
  /** A reply that was recorded and not read yet. */
  pendingReply?: RecordedReply;
  /** Runs that began and have not ended; their processes may be gone. */
  runs: { run: string; owner: Owner }[];
  /** What the first run was asked for, and the most that any run delivered. */
  asked?: Ask;
  delivered?: Ask;
  /** How many files a finished job has, once that was seen. */
  results?: number;
  /** Lines that could not be read. */
  damaged: number;
}

const rank: Record<Ask, number> = { accept: 1, finish: 2, file: 3 };

/** True where some run delivered at least what the job was first asked for. */
export function isSettled(job: Job): boolean {
  const { asked = 'accept', delivered } = job.record;
  return delivered !== undefined && rank[delivered] >= rank[asked];
}

/** True where nothing more will happen to the job by itself. */
export function isFinal(state: JobState): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'rejected';
}

/**
 * Folds a job's events in their order. `damaged` counts lines that could not be read: a job with damage and no
 * handle is `unknown`, never "not sent". Undefined where the first readable event is not `prepared`.
 */
export function foldJob(id: string, events: readonly RecordedEvent[], damaged = 0): Job | undefined {
  const [first, ...rest] = events;
  if (first?.type !== 'prepared') return undefined;
  const job = newJob(id, first, damaged);
  for (const event of rest) apply(job, event);
  if (damaged > 0 && job.handle === undefined && !isFinal(job.state)) job.state = 'unknown';
  return job;
}

function newJob(id: string, first: RecordedEvent & { type: 'prepared' }, damaged: number): Job {
  return {
    id,
    protocol: first.protocol,
    model: first.model,
    key: first.key,
    state: 'prepared',
    base_url: first.base_url,
    created_at: first.at,
    files: [],
    request: first.request,
    record: {
      fingerprint: first.fingerprint,
      account: first.account,
      elided: first.elided ?? false,
      attempts: 0,
      runs: [],
      damaged,
    },
  };
}

function apply(job: Job, event: RecordedEvent): void {
  switch (event.type) {
    case 'prepared':
      return;
    case 'began':
    case 'delivered':
    case 'detached':
      return applyRun(job, event);
    case 'sending':
    case 'reply':
    case 'refused':
    case 'accepted':
    case 'rejected':
    case 'lost':
    case 'resolved':
      return applySubmission(job, event);
    case 'observed':
    case 'finished':
      return applyObservation(job, event);
    case 'file':
      job.files = [...job.files.filter((file) => file.path !== event.file.path), event.file];
      job.fetched_at = event.at;
  }
}

function applyRun(job: Job, event: RecordedEvent & { type: 'began' | 'delivered' | 'detached' }): void {
  const { record } = job;
  if (event.type === 'began') {
    record.asked ??= event.ask;
    record.runs = [...record.runs, { run: event.run, owner: event.owner }];
    return;
  }
  record.runs = record.runs.filter(({ run }) => run !== event.run);
  if (event.type === 'delivered' && rank[event.ask] >= rank[record.delivered ?? 'accept'])
    record.delivered = event.ask;
}

type SubmissionEvent = RecordedEvent & {
  type: 'sending' | 'reply' | 'refused' | 'accepted' | 'rejected' | 'lost' | 'resolved';
};

function applySubmission(job: Job, event: SubmissionEvent): void {
  const { record } = job;
  if (event.type === 'reply') {
    record.pendingReply = event.reply;
    return;
  }
  record.pendingReply = undefined;
  record.sender = undefined;
  if (event.type === 'sending') return void startSending(job, event);
  if (event.type === 'resolved') return void resolve(job, event.how);
  if (event.type === 'accepted') return void accept(job, event);
  if (job.handle !== undefined) return;
  job.error = event.error;
  job.state = { refused: 'prepared', rejected: 'rejected', lost: 'unknown' }[event.type] as JobState;
}

function startSending(job: Job, event: RecordedEvent & { type: 'sending' }): void {
  job.record.attempts = Math.max(job.record.attempts, event.attempt);
  job.record.sender = event.owner;
  job.submitted_at = event.at;
  job.error = undefined;
  if (job.handle === undefined) job.state = 'sending';
}

function accept(job: Job, event: RecordedEvent & { type: 'accepted' }): void {
  job.handle = event.handle;
  job.native_status = event.native_status;
  job.error = undefined;
  if (!isFinal(job.state) || job.state === 'rejected') job.state = 'queued';
}

function resolve(job: Job, how: 'adopted' | 'not-created' | 'resubmit'): void {
  if (job.handle !== undefined || how === 'adopted') return;
  job.state = how === 'not-created' ? 'rejected' : 'prepared';
  if (how === 'resubmit') job.record.damaged = 0;
}

// Success, once seen, is never undone (design 6).
function applyObservation(job: Job, event: RecordedEvent & { type: 'observed' | 'finished' }): void {
  if (job.state === 'succeeded') return;
  job.state = event.state;
  job.native_status = event.native_status;
  if (event.type === 'observed') {
    job.progress = event.progress;
    return;
  }
  job.finished_at = event.at;
  job.error = event.error;
  job.record.results = event.results;
  job.usage = event.usage;
  job.details = event.details;
}
