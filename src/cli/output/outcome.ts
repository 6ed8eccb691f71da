import { type Charged, exitCodes, type MgwError } from '../../errors.ts';
import { isObject } from '../../json.ts';
import { escapeControls } from '../../printable.ts';

/** The outcome of a command, printed in one place as text or as one JSON document (design 2). */
export interface Outcome {
  /** Members of the JSON document in addition to `ok`, `exit_code` and `error`. */
  json: Record<string, unknown>;
  /** The text for stdout without `--json`: data only, without a newline at the end. */
  text?: string;
  /** The error, if the command failed. */
  error?: MgwError;
  /** Records that it was printed; not called if printing failed. Only paid outcomes have it. */
  printed?: () => Promise<void>;
  /** Whether it was charged, if a repetition pays again. Reported if the outcome itself cannot be printed. */
  paid?: Charged;
  /** True for a command that ran jobs, whose outcome is reported to a workflow. */
  isRun?: boolean;
  /** Help to print on stderr above the error. */
  help?: string;
  /** True if the command has already written its data itself. */
  silent?: boolean;
  /** Overrides the exit code: `partial` if some of several jobs are not ok. */
  exitCode?: number;
}

/** Returns the exit code of an outcome. */
export function exitCodeOf(outcome: Outcome): number {
  return outcome.exitCode ?? outcome.error?.exitCode ?? exitCodes.ok;
}

/**
 * Returns the JSON document of a command (design 2), without a newline at the end.
 * @param fields the members to keep of the document and of the objects in it; all if undefined. `ok`, `exit_code` and
 * `error` are always kept.
 */
export function jsonDocument(outcome: Outcome, fields?: readonly string[]): string {
  const exitCode = exitCodeOf(outcome);
  const document = {
    ok: exitCode === 0,
    exit_code: exitCode,
    ...(fields === undefined ? outcome.json : withFields(outcome.json, fields)),
    ...(outcome.error && { error: errorView(outcome.error) }),
  };
  return escapeControls(JSON.stringify(document, undefined, 2));
}

function withFields(json: Record<string, unknown>, fields: readonly string[]): Record<string, unknown> {
  const kept = Object.entries(json).flatMap(([name, value]): [string, unknown][] => {
    // The handle of a job that could not be recorded is nowhere else.
    if (fields.includes(name) || name === 'handle') return [[name, value]];
    if (typeof value !== 'object' || value === null) return [];
    return [[name, Array.isArray(value) ? value.map((one) => picked(one, fields)) : picked(value, fields)]];
  });
  return Object.fromEntries(kept);
}

function picked(value: unknown, fields: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => fields.includes(name)));
}

/**
 * Returns the names of `--fields` if no member of the document has one of them. None if one has, since many members are
 * optional, or if a list in it is empty.
 */
export function unknownFields(json: Record<string, unknown>, fields: readonly string[]): UnknownFields {
  const parts = Object.values(json).flatMap((value): unknown[] => (Array.isArray(value) ? value : [value]));
  const isEmpty = Object.values(json).some((value) => Array.isArray(value) && value.length === 0);
  const known = new Set([
    ...['ok', 'exit_code', 'error', ...Object.keys(json)],
    ...parts.flatMap((part) => (isObject(part) ? Object.keys(part) : [])),
  ]);
  const isKnown = isEmpty || fields.some((name) => known.has(name));
  return { unknown: isKnown ? [] : fields, known: [...known] };
}

/** The names of `--fields` that a document lacks, and those that it has. */
export interface UnknownFields {
  unknown: readonly string[];
  known: readonly string[];
}

/** Returns an error as a member of the JSON document. */
export function errorView(error: MgwError): Record<string, unknown> {
  return {
    code: error.code,
    message: error.message,
    charged: error.charged,
    retry: error.retry,
    next: error.next,
    request_id: error.requestId,
    budget: error.budget,
  };
}
