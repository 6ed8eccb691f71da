/** What a job is about: the name of a video protocol (`protocols/registry.ts`), or `tts` for speech. */
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

/** A file that holds a job's result. */
export interface JobFile {
  /** Absolute path, or `s3://BUCKET/KEY`. */
  path: string;
  bytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  mime?: string;
  /** Measured when the file was saved; absent if it is no MP4 that can be measured. */
  delivered?: Delivered;
  /** Where `delivered` differs from the request; absent if it does not. */
  mismatches?: Mismatch[];
  /** What the file says about its origin; absent if nothing. */
  provenance?: Provenance[];
  /** The SHA-256 of the gateway's bytes, if `--mark` added to them. */
  unmarked_sha256?: string;
}

/** A C2PA manifest, an XMP packet, or the label `AIGC`. */
export type Provenance = 'c2pa' | 'xmp' | 'aigc';

/** What a video is by the boxes of its own file (design 19). A member that the file does not tell is absent. */
export interface Delivered {
  /** Seconds that the picture lasts. */
  duration?: number;
  /** As displayed: after rotation, in square pixels. */
  width?: number;
  height?: number;
  /** Average frames a second. */
  fps?: number;
  /** Whether there is sound. */
  audio: boolean;
}

/** A difference between what a request asked for and what was delivered. */
export interface Mismatch {
  field: 'duration' | 'resolution' | 'aspect_ratio' | 'fps' | 'audio';
  /** As the request has it. */
  asked: string | number | boolean;
  /** Seconds, `1280x720`, frames a second, or whether there is sound. */
  delivered: string | number | boolean;
}

/** What went wrong with a job, in the gateway's own words. */
export interface JobError {
  code: string;
  message: string;
  native_code?: string;
}

/** The process that carries a run out (`ledger/owner.ts` tells whether it is alive). */
export interface Owner {
  pid: number;
  /** The process's start in the system's own terms, or '' if the system does not tell. */
  start: string;
  /** The machine, its boot and the process namespace. */
  host: string;
  /** Made up by the process itself, to tell it from one that was given its id again. */
  instance?: string;
  /** The lease under which a shared ledger knows it. */
  lease?: string;
}

/** What can be shown of a process from here: nothing if it runs elsewhere, or its start is not known. */
export type Life = 'alive' | 'dead' | 'unknown';

/** How much a run was asked to deliver. */
export type Ask = 'accept' | 'finish' | 'file';

/** What a command asks of a job: the same goal of the same submission is the same command (design 4). */
export interface Goal {
  /** `submit` for the command that pays. */
  command: 'submit' | 'wait' | 'fetch';
  ask: Ask;
  /** Where the file goes: an absolute path, or `-` for standard output. */
  output?: string;
}

/** An answer as it was received, recorded before it is read. The key is redacted from it. */
export interface RecordedReply {
  status: number;
  headers: Record<string, string>;
  text: string;
  complete: boolean;
}

/** What a submission costs, as it was known when it was sent; amounts are exact decimals in plain digits. */
export interface JobCost {
  at_most: string;
  /** Of 10,000 characters by the gateway's count, which speech is settled by. */
  per_10k_characters?: string;
}

/** The cost and reservations of an attempt, recorded before it is sent. */
export interface AttemptMoney {
  /** Absent if no price is known. */
  cost?: JobCost;
  /** The reservation under which it is sent, and the budgets that hold it. */
  reservation?: string;
  budgets?: string[];
}

/** What a person thinks of a job's result. */
export interface Rating {
  /** 1 to 5. */
  rating?: number;
  note?: string;
}

/** A line of a job's log. The job is the fold of its lines (design 4). */
export type JobEvent =
  | {
      type: 'prepared';
      protocol: JobKind;
      base_url: string;
      /** Hash of base URL, protocol and canonical body; '' for an imported handle, {@link lostFingerprint}. */
      fingerprint: string;
      /** Keyed hash of the API key; never the key. */
      account: string;
      model?: string;
      key?: string;
      /** Words that the row of a batch gave its job. */
      tags?: string[];
      request?: unknown;
      /** True if the body was too large to record: it cannot be sent again from the record. */
      elided?: boolean;
    }
  /** A process takes the job on; `run` names it in the events that follow. */
  | ({ type: 'began'; run: string; owner: Owner } & Goal)
  | ({ type: 'sending'; attempt: number; owner: Owner } & AttemptMoney)
  | { type: 'reply'; attempt: number; reply: RecordedReply }
  /** The attempt is known not to have been handled; the next one may be made. */
  | { type: 'unavailable'; attempt: number; error: JobError }
  | { type: 'accepted'; handle: string; native_status?: string; warning?: string }
  | { type: 'rejected'; attempt?: number; error: JobError }
  /** Nothing tells whether the task exists. */
  | { type: 'unknown'; attempt?: number; error: JobError; handle?: string }
  | { type: 'observed'; state: JobState; native_status: string; progress?: number }
  | {
      type: 'finished';
      state: 'succeeded' | 'failed';
      native_status: string;
      progress?: number;
      error?: JobError;
      /** How many files there are to fetch. */
      results?: number;
      usage?: unknown;
      details?: unknown;
    }
  /** `instead_of` is the local file that was uploaded, and is no longer a file of the job. */
  | { type: 'file'; file: JobFile; instead_of?: string }
  /** A multipart upload of a file; without an id, it is about to be created. */
  | { type: 'uploading'; url: string; id?: string | undefined; since: string }
  /** The run got what it was asked for. */
  | { type: 'delivered'; run: string }
  /** The run ended before that. */
  | { type: 'detached'; run: string; exit_code: number }
  /** A person decided what became of an attempt in doubt. */
  | { type: 'resolved'; attempt?: number; how: 'adopted' | 'not-created' | 'resubmit' }
  /** What a person thinks of the result; what is absent is taken back. */
  | ({ type: 'rated' } & Rating);

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
  /** Of the last attempt. */
  cost?: JobCost;
  tags?: string[];
  rating?: number;
  note?: string;
  rated_at?: string;
  /** @internal What the ledger knows in addition to what `--json` shows. */
  record: JobRecord;
}

/** The bookkeeping of a job that is not shown to users. */
export interface JobRecord {
  fingerprint: string;
  account: string;
  elided: boolean;
  /** Attempts to send so far, counting one that was claimed and never began. */
  attempts: number;
  /** The process that is sending, while state is `sending`. */
  sender?: Owner;
  /** The process that made the last attempt; it stays. */
  sentBy?: Owner;
  /** A task id in an answer that left the submission in doubt. */
  possibleHandle?: string;
  /** A reply that was recorded and not read yet. */
  pendingReply?: RecordedReply;
  /** Runs that began and have not ended; their processes may be gone. */
  runs: (Goal & { run: string; owner: Owner })[];
  /** What the commands that pay wanted, and when a run of each last delivered it, ISO 8601. */
  goals: (Goal & { deliveredAt?: string })[];
  /** How many files a finished job has, once that was seen. */
  results?: number;
  /** Multipart uploads that were begun; absent if there are none. */
  uploads?: { url: string; id?: string | undefined; since: string }[];
  /** Lines that could not be read and that no person has settled since. */
  damaged: number;
  /** What the ledger can tell of the processes that its events name. */
  lifeOf: (owner: Owner) => Life;
}

/** The fingerprint of a job whose record has lost its beginning: it may be any. */
export const lostFingerprint = 'lost';

/** The protocol of a job whose record has lost its beginning and names none: it may be any, or speech. */
export const lostProtocol = 'unknown';

/** True if one goal is the other: the same command, typed again. */
export function isSameGoal(one: Goal, other: Goal): boolean {
  return one.command === other.command && one.ask === other.ask && one.output === other.output;
}

/**
 * True if the command that paid for a job has not got what it wanted (design 4): the same command carries on with it,
 * and so does one that asks for something else of it.
 */
export function isOpenFor(job: Job, goal: Goal): boolean {
  const { goals } = job.record;
  const own = goals.find((each) => isSameGoal(each, goal));
  if (own !== undefined) return own.deliveredAt === undefined;
  return goals.length === 0 || goals.some(({ deliveredAt }) => deliveredAt === undefined);
}

/** The gateway's own word for a job's state, if it differs from mgw's. */
export function nativeWord({
  native_status: native,
  state,
}: Pick<Job, 'native_status' | 'state'>): string | undefined {
  return native && native.toLowerCase() !== state ? native : undefined;
}

/** True if nothing more will happen to the job by itself. */
export function isFinal(state: JobState): boolean {
  return state === 'succeeded' || state === 'failed' || state === 'rejected';
}
