import type { Job } from './job.ts';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { printableLine } from './printable.ts';

/** All error codes. Scripts rely on them (`error.code` in `--json` output). */
export type ErrorCode =
  | 'usage'
  | 'config'
  | 'auth'
  | 'balance'
  | 'budget'
  | 'rate_limited'
  | 'not_found'
  | 'invalid_request'
  | 'content_policy'
  | 'server_error'
  | 'unreachable'
  | 'bad_reply'
  | 'submit_unknown'
  | 'pending'
  | 'task_failed'
  | 'result_unavailable'
  | 'result_corrupt'
  | 'speech_incomplete'
  | 'output_exists'
  | 'local_io'
  | 'store'
  | 'conflict'
  | 'internal';

/** Exit codes by name. Scripts rely on them; `mgw help exit-codes` prints them. */
export const exitCodes = {
  ok: 0,
  internal: 1,
  usage: 2,
  auth: 3,
  rejected: 4,
  failed: 5,
  unavailable: 6,
  unknown: 7,
  pending: 8,
  incomplete: 9,
  local: 10,
  partial: 11,
  budget: 12,
  interrupted: 130,
  terminated: 143,
} as const;

export type ExitName = keyof typeof exitCodes;

const exitNames = Object.keys(exitCodes) as ExitName[];

/** Whether the failed action cost money. */
export type Charged = 'no' | 'maybe' | 'yes';

/**
 * Whether to run the command again: `safe` if nothing was accepted, `resume` if a rerun continues the job, `never` if a
 * rerun would pay or fail again.
 */
export type Retry = 'safe' | 'resume' | 'never';

const exitByCode: Record<ErrorCode, ExitName> = {
  usage: 'usage',
  config: 'usage',
  conflict: 'usage',
  auth: 'auth',
  balance: 'rejected',
  budget: 'budget',
  not_found: 'rejected',
  invalid_request: 'rejected',
  content_policy: 'rejected',
  rate_limited: 'unavailable',
  server_error: 'unavailable',
  unreachable: 'unavailable',
  bad_reply: 'unavailable',
  submit_unknown: 'unknown',
  pending: 'pending',
  task_failed: 'failed',
  result_unavailable: 'incomplete',
  result_corrupt: 'incomplete',
  speech_incomplete: 'incomplete',
  output_exists: 'local',
  local_io: 'local',
  store: 'local',
  internal: 'internal',
};

/** The state of a budget that a submission would exceed. Amounts are exact decimals in plain digits. */
export interface BudgetShortfall {
  name: string;
  /** Absent if the budget has no limit. */
  limit?: string;
  per?: 'day' | 'month';
  spent: string;
  /** The amount reserved for payments that are in progress or whose outcome is unknown. */
  reserved: string;
  left: string;
  /** The maximum cost of the submission; absent if no price is known. */
  cost_at_most?: string;
  exceeded_by?: string;
}

/** The details of an error. `exit` overrides the exit code of the error code. */
export interface ErrorDetails {
  charged?: Charged;
  retry?: Retry;
  /** The suggested next command, as an argument vector. */
  next?: string[];
  /** The gateway's own id for the call. */
  requestId?: string;
  exit?: ExitName;
  /** The job that the error is about, if known. */
  job?: Job;
  /** The handle of an accepted task that could not be recorded. It must be shown to the user (design 5). */
  handle?: string;
  /** The budget that would be exceeded. */
  budget?: BudgetShortfall;
  /**
   * What the command pays for separately: the pieces of long text or the rows of a batch; absent for a single
   * submission.
   */
  parts?: 'pieces' | 'rows';
  /** The path that could not be read or written. */
  path?: string;
  /** Whether the error concerns an input of this submission only, so it does not affect the other rows of a batch. */
  isOfInput?: boolean;
  /** The video protocols that accept the command. */
  protocols?: readonly string[];
  /** The words to insert into the typed command to correct it. */
  lacks?: readonly string[];
  /** The correct value of a flag whose value in the typed command is wrong, such as misspelt. */
  correction?: { flags: readonly string[]; value: string };
  /** A text argument that names a file, and the flag that reads a file. Without `flag`, a `-` argument reads stdin. */
  fileName?: { text: string; path: string; flag?: string };
  /** An argument of the typed command, and the words that correct it. */
  argument?: { text: string; words: readonly string[] };
  cause?: unknown;
}

/** The only error class in mgw: a code, a message for the user, whether money was spent, and the next command. */
export class MgwError extends Error {
  override readonly name = 'MgwError';
  readonly code: ErrorCode;
  readonly exitCode: number;
  readonly charged: Charged;
  readonly retry: Retry;
  readonly next: string[] | undefined;
  readonly requestId: string | undefined;
  readonly job: Job | undefined;
  readonly handle: string | undefined;
  readonly budget: BudgetShortfall | undefined;
  readonly parts: ErrorDetails['parts'];
  readonly path: string | undefined;
  readonly isOfInput: boolean | undefined;
  readonly protocols: readonly string[] | undefined;
  readonly lacks: readonly string[] | undefined;
  readonly correction: ErrorDetails['correction'];
  readonly fileName: ErrorDetails['fileName'];
  readonly argument: ErrorDetails['argument'];

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, { cause: details.cause });
    this.code = code;
    this.exitCode = exitCodes[details.exit ?? exitByCode[code]];
    this.charged = details.charged ?? 'no';
    this.retry = details.retry ?? 'never';
    this.next = details.next;
    this.requestId = details.requestId;
    this.job = details.job;
    this.handle = details.handle;
    this.budget = details.budget;
    this.parts = details.parts;
    this.path = details.path;
    this.isOfInput = details.isOfInput;
    this.protocols = details.protocols;
    this.lacks = details.lacks;
    this.correction = details.correction;
    this.fileName = details.fileName;
    this.argument = details.argument;
  }

  /** Returns a copy of the error with the given details and, if given, another message. */
  with(details: ErrorDetails, message: string = this.message): MgwError {
    const exit = exitNames.find((name) => exitCodes[name] === this.exitCode);
    const { charged, retry, next, requestId, job, handle, budget, parts, path, protocols, cause } = this;
    const { isOfInput, lacks, correction, fileName, argument } = this;
    const places = { parts, path, isOfInput, protocols, lacks, correction, fileName, argument, cause };
    const currentDetails = { exit, charged, retry, next, requestId, job, handle, budget, ...places };
    return new MgwError(this.code, message, { ...currentDetails, ...details });
  }
}

/** Returns an error for invalid input: exit code 2, and nothing was sent. */
export function usageError(message: string, next?: string[]): MgwError {
  return new MgwError('usage', message, { next });
}

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Converts any thrown value to an MgwError. Unexpected errors are `internal`. */
export function toMgwError(error: unknown): MgwError {
  if (error instanceof MgwError) return error;
  return new MgwError('internal', `This is a bug in mgw: ${messageOf(error)}`, {
    charged: 'maybe',
    cause: error,
  });
}

/** Finds the error code from Node or the operating system (`ENOSPC`, `ECONNRESET`) in an error's chain of causes. */
export function systemCode(error: unknown): string | undefined {
  for (let current = error, depth = 0; current instanceof Error && depth < 5; depth += 1) {
    const isMgwError = current instanceof MgwError;
    if (!isMgwError && 'code' in current && typeof current.code === 'string') return current.code;
    current = current.cause;
  }
  return undefined;
}

const linkUnsupportedCodes = new Set([
  'EPERM',
  'EACCES',
  'ENOTSUP',
  'EOPNOTSUPP',
  'ENOSYS',
  'EMLINK',
  'EINVAL',
  'UNKNOWN',
]);

/**
 * Whether creating a hard link failed because the file system does not support hard links, as on FAT and
 * some network and container mounts.
 */
export function isLinkUnsupported(error: unknown): boolean {
  return linkUnsupportedCodes.has(systemCode(error) ?? '');
}

const systemMessages: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is exceeded',
  EROFS: 'the file system is read-only',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  ENOENT: 'no such folder',
  ENOTDIR: 'part of the path is not a folder',
  EISDIR: 'it is a folder',
  EEXIST: 'a file with this name already exists',
  ELOOP: 'it is a symbolic link',
  ENAMETOOLONG: 'the name is too long',
  EFBIG: 'the file system does not support a file of this size',
};

// Errors that the user must fix before the command can succeed.
const permanentCodes = ['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ELOOP', 'ENAMETOOLONG'];

/** Returns the error (exit 10) for a local file that cannot be read or written. Returns an MgwError unchanged. */
export function localError(error: unknown, path: string, charged: Charged): MgwError {
  if (error instanceof MgwError) return error;
  const cause = (systemCode(error) === 'ENOENT' && folderError(dirname(path))) || error;
  const code = systemCode(cause) ?? '';
  const isFolderMissing = code === 'ENOENT' && !existsSync(dirname(path));
  const reason = systemMessages[code] ?? printableLine(messageOf(cause), 300);
  const retry = permanentCodes.includes(code) ? 'never' : 'safe';
  return new MgwError('local_io', `Cannot write ${printableLine(path)}: ${reason}.`, {
    charged,
    retry: charged === 'no' ? retry : 'resume',
    ...(charged === 'no' && isFolderMissing && { next: ['mkdir', '-p', dirname(path)] }),
    path,
    cause,
  });
}

// Returns the system's error if a missing folder cannot be created, for example on a read-only file system.
function folderError(folder: string): unknown {
  const parent = dirname(folder);
  if (!existsSync(folder)) return parent === folder ? undefined : folderError(parent);
  try {
    accessSync(folder, constants.W_OK);
    return undefined;
  } catch (error) {
    return error;
  }
}
