/** The kind of a job: the name of a video protocol (`protocols/registry.ts`), or `tts` for speech. */
export type JobKind = string;

/** The states of a job (design 2). */
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

/** The state of a job. */
export type JobState = (typeof jobStates)[number];

/** A file with a job's result. */
export interface JobFile {
  /** The absolute path, or `s3://BUCKET/KEY`. */
  path: string;
  bytes: number;
  /** The SHA-256 of the file, in lower-case hexadecimal. */
  sha256: string;
  mime?: string;
  /** Measured when the file was saved; absent if it is not an MP4 that can be measured. */
  delivered?: Delivered;
  /** The differences between `delivered` and the request; absent if there are none. */
  mismatches?: Mismatch[];
  /** The statements of origin in the file; absent if there are none. */
  provenance?: Provenance[];
  /** The SHA-256 of the gateway's bytes, if `--mark` added to them. */
  unmarked_sha256?: string;
}

/** A C2PA manifest, an XMP packet, or the label `AIGC`. */
export type Provenance = 'c2pa' | 'xmp' | 'aigc';

/** The properties of a video, measured from the boxes of its file (design 19). An unknown member is absent. */
export interface Delivered {
  /** The length of the picture in seconds. */
  duration?: number;
  /** The size as displayed: after rotation, in square pixels. */
  width?: number;
  height?: number;
  /** The average number of frames a second. */
  fps?: number;
  /** Whether there is sound. */
  audio: boolean;
}

/** A difference between a request and the delivered file. */
export interface Mismatch {
  field: 'duration' | 'resolution' | 'aspect_ratio' | 'fps' | 'audio';
  /** The value in the request. */
  asked: string | number | boolean;
  /** The delivered value: seconds, `1280x720`, frames a second, or whether there is sound. */
  delivered: string | number | boolean;
}

/** The error of a job, with the gateway's own message. */
export interface JobError {
  code: string;
  message: string;
  native_code?: string;
}

/** The process of a run (`ledger/owner.ts` finds whether it is alive). */
export interface Owner {
  pid: number;
  /** The start time of the process, in the system's own unit; '' if unknown. */
  start: string;
  /** The machine, its boot and the process namespace. */
  host: string;
  /** A random value of the process, which distinguishes it from a later process with the same id. */
  instance?: string;
  /** The lease of the process in a shared ledger. */
  lease?: string;
}

/** Whether a process is alive. Unknown if it runs elsewhere, or its start is not known. */
export type Life = 'alive' | 'dead' | 'unknown';

/** What a run must achieve before it is done. */
export type Milestone = 'accept' | 'finish' | 'file';

/**
 * The goal of a command. Two commands with the same submission and the same goal count as one command that was repeated
 * (design 4).
 */
export interface Goal {
  /** The kind of command; `submit` for the command that pays, `rm` for one that removes the job. */
  command: 'submit' | 'wait' | 'fetch' | 'rm';
  ask: Milestone;
  /** The output: an absolute path, or `-` for standard output. */
  output?: string;
}

/** A response as it was received, recorded before it is interpreted. The key is redacted. */
export interface RecordedReply {
  status: number;
  headers: Record<string, string>;
  text: string;
  complete: boolean;
}

/** The cost of a submission, as known when it was sent. Amounts are exact decimals in plain digits. */
export interface JobCost {
  at_most: string;
  /** The price of 10,000 characters by the gateway's count, which settles speech. */
  per_10k_characters?: string;
}

/** The cost and reservations of an attempt, recorded before it is sent. */
export interface AttemptMoney {
  /** The cost; absent if no price is known. */
  cost?: JobCost;
  /** The reservation of the attempt, and its budgets. */
  reservation?: string;
  budgets?: string[];
  /** The limit of `--budget`, if it is one of the budgets. */
  limit?: string;
}

/** A user's rating of a job's result. */
export interface Rating {
  /** From 1 to 5. */
  rating?: number;
  note?: string;
}

/** A line of a job's log. The job is the fold of its lines (design 4). */
export type JobEvent =
  | {
      type: 'prepared';
      protocol: JobKind;
      base_url: string;
      /**
       * Hash of base URL, protocol and canonical body; '' for an imported handle; {@link lostFingerprint} if unknown.
       */
      fingerprint: string;
      /** Keyed hash of the API key; never the key. */
      account: string;
      model?: string;
      key?: string;
      /** Distinguishes jobs with the same body: see `Order.variant`. */
      variant?: string;
      /** The tags that a batch's row gave its job. */
      tags?: string[];
      request?: unknown;
      /** True if the body was too large to record: it cannot be sent again from the record. */
      elided?: boolean;
    }
  /** A process begins a run of the job; `run` identifies it in the following events. */
  | ({ type: 'began'; run: string; owner: Owner } & Goal)
  | ({ type: 'sending'; attempt: number; owner: Owner } & AttemptMoney)
  | { type: 'reply'; attempt: number; reply: RecordedReply }
  /** The attempt was certainly not handled, so another one may be made. */
  | { type: 'unavailable'; attempt: number; error: JobError }
  /** `adopted`: a person entered the handle. `instead_of` is the adopted handle that it corrects. */
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
  | { type: 'observed'; state: JobState; native_status: string; progress?: number }
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
  /** `instead_of` is the local file that was uploaded, and is no longer a file of the job. */
  | { type: 'file'; file: JobFile; instead_of?: string }
  /** A multipart upload of a file; without an id, it is about to be created. */
  | { type: 'uploading'; url: string; id?: string | undefined; since: string }
  /** The run achieved its goal. */
  | { type: 'delivered'; run: string }
  /** The run ended before it achieved its goal. */
  | { type: 'detached'; run: string; exit_code: number }
  /** The user decided the outcome of an attempt in doubt. `instead_of` is the adopted handle that was wrong. */
  | { type: 'resolved'; attempt?: number; how: 'adopted' | 'not-created' | 'resubmit'; instead_of?: string }
  /** A user's rating of the result. An absent member is removed. */
  | ({ type: 'rated' } & Rating);

/** An event with the time it was recorded, ISO 8601 in UTC. */
export type RecordedEvent = JobEvent & { at: string };

/** A job as the fold of its events; its snake-case members appear in `--json` (design 2). */
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
  /** @internal The ledger's data that `--json` does not include. */
  record: JobRecord;
}

/** The internal data of a job, which users do not see. */
export interface JobRecord {
  fingerprint: string;
  variant?: string | undefined;
  account: string;
  elided: boolean;
  /** The number of attempts to send, including one that was claimed but never started. */
  attempts: number;
  /** The process that is sending, while state is `sending`. */
  sender?: Owner;
  /** The process that made the last attempt, even after the attempt has ended. */
  sentBy?: Owner;
  /** A task id in a response that left the submission in doubt. */
  possibleHandle?: string;
  /**
   * Whether a person entered the handle, and the gateway has never returned its task. Such a job can be resolved again.
   */
  isUnconfirmed?: boolean;
  /** A response that was recorded but not read yet. */
  pendingReply?: RecordedReply;
  /** Runs that have not ended. Their processes may be dead. */
  runs: (Goal & { run: string; owner: Owner })[];
  /** The goals of the paying commands, and when a run last achieved each, ISO 8601. */
  goals: (Goal & { deliveredAt?: string })[];
  /** The number of files of a finished job, if known. */
  results?: number;
  /** Unfinished multipart uploads; absent if there are none. */
  uploads?: { url: string; id?: string | undefined; since: string }[];
  /** The number of unreadable lines that the user has not resolved. */
  damaged: number;
  /** Returns whether a process of the record was alive when this was first called for it. */
  lifeOf: (owner: Owner) => Life;
}

/** The fingerprint of a job whose record lost its first lines, so that the real fingerprint is unknown. */
export const lostFingerprint = 'lost';

/** The protocol of a job whose record lost its first lines. The real protocol is unknown, and may be speech. */
export const lostProtocol = 'unknown';

/** Whether two goals belong to the same command. */
export function isSameGoal(one: Goal, other: Goal): boolean {
  return one.command === other.command && one.ask === other.ask && one.output === other.output;
}

/**
 * Whether a command with this goal continues the job instead of paying for a new one (design 4). If the job has this
 * goal, it must not be achieved yet. If the job has only other goals, at least one of them must not be achieved yet.
 */
export function isOpenFor(job: Job, goal: Goal): boolean {
  const { goals } = job.record;
  const sameGoal = goals.find((each) => isSameGoal(each, goal));
  if (sameGoal !== undefined) return sameGoal.deliveredAt === undefined;
  return goals.length === 0 || goals.some(({ deliveredAt }) => deliveredAt === undefined);
}

/** The gateway's own word for a job's state, if it differs from mgw's. */
export function nativeWord({
  native_status: native,
  state,
}: Pick<Job, 'native_status' | 'state'>): string | undefined {
  return native && native.toLowerCase() !== state ? native : undefined;
}

/** True if the state will not change unless the user changes it. */
export function isFinal(state: JobState): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'rejected';
}
