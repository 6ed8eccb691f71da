/** The kind of a job: the name of a video protocol (`protocols/registry.ts`), or `tts` for speech. */
export type JobKind = string;

/** Job states (design 2). */
export const jobStates = [
  'prepared',
  'sending',
  'unknown',
  'queued',
  'running',
  'succeeded',
  'failed',
  'rejected',
] as const;

/** A job's state: one of {@link jobStates}. */
export type JobState = (typeof jobStates)[number];

/** A file that contains a job's result. */
export interface JobFile {
  /** The file's absolute path, or `s3://BUCKET/KEY` for an object. */
  path: string;
  /** The result's number within its job, starting at 1; absent if the job has only one result. */
  sample?: number;
  bytes: number;
  /** The file's SHA-256 in lower-case hexadecimal. */
  sha256: string;
  mime?: string;
  /** Measured when the file was saved; absent if the file is not an MP4 that mgw can measure. */
  delivered?: Delivered;
  /** Differences between `delivered` and the request; absent if there are none. */
  mismatches?: Mismatch[];
  /** The provenance statements in the file; absent if there are none. */
  provenance?: Provenance[];
  /** The SHA-256 of the file as the gateway delivered it; set if `--mark` added a label to the file. */
  unmarked_sha256?: string;
}

/** The kind of a provenance statement: a C2PA manifest, an XMP packet, or the label `AIGC`. */
export type Provenance = 'c2pa' | 'xmp' | 'aigc';

/** A video's properties, as measured from the boxes in its file (design 19). Unknown members are absent. */
export interface Delivered {
  /** The duration of the video track, in seconds. */
  duration?: number;
  /** The displayed width, after rotation and in square pixels. */
  width?: number;
  height?: number;
  /** The average frame rate, in frames per second. */
  fps?: number;
  /** Whether the video has sound. */
  audio: boolean;
}

/** A difference between the request and the delivered file. */
export interface Mismatch {
  field: 'duration' | 'resolution' | 'aspect_ratio' | 'fps' | 'audio';
  /** The requested value. */
  asked: string | number | boolean;
  /** The delivered value: seconds, a size such as `1280x720`, frames per second, or whether there is sound. */
  delivered: string | number | boolean;
}

/** A job's error, with the gateway's own message. */
export interface JobError {
  code: string;
  message: string;
  native_code?: string;
}

/** The process that executes a run. `ledger/owner.ts` determines whether it is alive. */
export interface Owner {
  pid: number;
  /** The process's start time, in a system-specific unit; '' if unknown. */
  start: string;
  /** Identifies the machine, its boot and the process namespace. */
  host: string;
  /** A random value that distinguishes a process from a later one with the same id, and threads from each other. */
  instance?: string;
  /** The process's lease in a shared ledger. */
  lease?: string;
}

/** Whether a process is alive. Unknown if, for example, it runs on another machine or its start time is unknown. */
export type Life = 'alive' | 'dead' | 'unknown';

/** What a run must achieve before it is done. */
export type Milestone = 'accept' | 'finish' | 'file';

/** A command's goal. Two commands with the same submission and goal are treated as one repeated command (design 4). */
export interface Goal {
  /** The kind of command: `submit` for a command that pays, `rm` for one that removes the job. */
  command: 'submit' | 'wait' | 'fetch' | 'rm';
  ask: Milestone;
  /** The output: an absolute path, or `-` for standard output. */
  output?: string;
}

/** A response as received, recorded before it is interpreted. The API key is redacted. */
export interface RecordedReply {
  status: number;
  headers: Record<string, string>;
  text: string;
  complete: boolean;
}

/** A submission's cost, as known when it was sent. Amounts are exact decimals in plain digits. */
export interface JobCost {
  at_most: string;
  /** The price of 10,000 characters. The gateway's count of characters determines the final cost of speech. */
  per_10k_characters?: string;
}

/** An attempt's cost and reservation, recorded before the attempt is sent. */
export interface AttemptMoney {
  /** The cost; absent if no price is known. */
  cost?: JobCost;
  /** The id of the attempt's reservation, and the budgets that it affects. */
  reservation?: string;
  budgets?: string[];
  /** The limit that `--budget` sets, if its budget is one of `budgets`. */
  limit?: string;
}

/** A user's rating of a job's result. */
export interface Rating {
  /** A number from 1 to 5. */
  rating?: number;
  note?: string;
}

/** An event in a job's log. A job is the fold of its events (design 4). */
export type JobEvent =
  | {
      type: 'prepared';
      protocol: JobKind;
      base_url: string;
      /** Hash of base URL, protocol and canonical body; '' for an imported handle; {@link lostFingerprint} if lost. */
      fingerprint: string;
      /** Keyed hash of the API key, never the key itself. */
      account: string;
      model?: string;
      key?: string;
      /** Distinguishes jobs with the same body; see `Order.variant`. */
      variant?: string;
      tags?: string[];
      request?: unknown;
      /** True if the body was too large or contained the API key. It cannot be sent again from the record. */
      elided?: boolean;
      /** The value of `--endpoint`, if the user chose one of the protocol's equivalent paths. */
      endpoint?: string | undefined;
    }
  /** A process begins a run of the job. `run` identifies that run in later events. */
  | ({ type: 'began'; run: string; owner: Owner } & Goal)
  | ({ type: 'sending'; attempt: number; owner: Owner } & AttemptMoney)
  | { type: 'reply'; attempt: number; reply: RecordedReply }
  /** The attempt was definitely not handled, so another attempt may be made. */
  | { type: 'unavailable'; attempt: number; error: JobError }
  /** `adopted` is true if the user entered the handle. `instead_of` is the wrong handle that it replaces. */
  | {
      type: 'accepted';
      handle: string;
      native_status?: string;
      warning?: string;
      adopted?: true;
      instead_of?: string;
    }
  | { type: 'rejected'; attempt?: number; error: JobError }
  /** It is unknown whether the task exists. */
  | { type: 'unknown'; attempt?: number; error: JobError; handle?: string }
  /** The task is not finished. `revokes`: the task was recorded as failed before this response was requested. */
  | { type: 'observed'; state: JobState; native_status: string; progress?: number; revokes?: true }
  | {
      type: 'finished';
      state: 'succeeded' | 'failed';
      native_status: string;
      progress?: number;
      error?: JobError;
      /** The number of files to fetch. */
      results?: number;
      usage?: unknown;
      details?: unknown;
    }
  /** `instead_of` is the local file that was uploaded. It no longer belongs to the job. */
  | { type: 'file'; file: JobFile; instead_of?: string }
  /** A multipart upload of a file. Without an id, the upload is about to be created. */
  | { type: 'uploading'; url: string; id?: string | undefined; since: string }
  /** The run achieved its goal. */
  | { type: 'delivered'; run: string }
  /** The run ended before it achieved its goal. */
  | { type: 'detached'; run: string; exit_code: number }
  /** The user decided the outcome of an attempt in doubt. `instead_of` is the wrong handle that was adopted before. */
  | { type: 'resolved'; attempt?: number; how: 'adopted' | 'not-created' | 'resubmit'; instead_of?: string }
  /** The user's rating of the result. An absent member removes that part of an earlier rating. */
  | ({ type: 'rated' } & Rating);

/** An event with the time at which it was recorded, ISO 8601 in UTC. */
export type RecordedEvent = JobEvent & { at: string };

/** A job as the fold of its events. Its snake-case members appear in `--json` output (design 2). */
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
  /** The cost of the last attempt. */
  cost?: JobCost;
  tags?: string[];
  rating?: number;
  note?: string;
  rated_at?: string;
  /** @internal Ledger data that `--json` output does not include. */
  record: JobRecord;
}

/** A job's internal data, not shown to users. */
export interface JobRecord {
  fingerprint: string;
  variant?: string | undefined;
  account: string;
  elided: boolean;
  endpoint?: string | undefined;
  /** The number of attempts to send the submission, including one that was claimed but never started. */
  attempts: number;
  /** The process that is sending the submission, while the state is `sending`. */
  sender?: Owner;
  /** The process that made the last attempt, even after the attempt has ended. */
  sentBy?: Owner;
  /** The task id from a response that left the submission in doubt. */
  possibleHandle?: string;
  /** Whether the user sent the job again, although an earlier attempt may have been accepted. */
  hasEarlierDoubt?: boolean;
  /** Whether the user entered a handle that the gateway has never confirmed. If so, the job can be resolved again. */
  isUnconfirmed?: boolean;
  /** A response that has been recorded but not yet interpreted. */
  pendingReply?: RecordedReply;
  /** Runs that have not ended. Their processes may be dead. */
  runs: (Goal & { run: string; owner: Owner })[];
  /** The goals of the paying commands, each with its last delivery (ISO 8601), and whether a failure was reported. */
  goals: (Goal & { deliveredAt?: string; isFailureReported?: true })[];
  /** The first file recorded at each path, oldest first. A later file at the same path does not replace it here. */
  firstFiles: JobFile[];
  /** The number of files that a finished job has, if known. */
  results?: number;
  /** Unfinished multipart uploads; absent if there are none. */
  uploads?: { url: string; id?: string | undefined; since: string }[];
  /** The number of unreadable lines in the job's log that the user has not resolved. */
  damaged: number;
  /** Returns whether a process named in the record is alive, as determined by the first call for that process. */
  lifeOf: (owner: Owner) => Life;
}

/** The fingerprint of a job whose record has lost its first lines: the real fingerprint is unknown. */
export const lostFingerprint = 'lost';

/** The protocol of a job whose record has lost its first lines: the real protocol is unknown, and may be speech. */
export const lostProtocol = 'unknown';

export function isSameGoal(one: Goal, other: Goal): boolean {
  return one.command === other.command && one.ask === other.ask && one.output === other.output;
}

/**
 * Whether a command with this goal continues the job instead of paying for a new one (design 4). If the job has this
 * goal, it must not have been achieved. If the job has only other goals, at least one must not have been achieved.
 */
export function isOpenFor(job: Job, goal: Goal): boolean {
  const { goals } = job.record;
  const sameGoal = goals.find((each) => isSameGoal(each, goal));
  if (sameGoal !== undefined) return sameGoal.deliveredAt === undefined;
  return goals.length === 0 || goals.some(({ deliveredAt }) => deliveredAt === undefined);
}

/** Returns the gateway's own name for a job's state, if it differs from mgw's. */
export function nativeWord({
  native_status: native,
  state,
}: Pick<Job, 'native_status' | 'state'>): string | undefined {
  return native && native.toLowerCase() !== state ? native : undefined;
}

/** Whether a state is final unless the user changes it. */
export function isFinal(state: JobState): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'rejected';
}
