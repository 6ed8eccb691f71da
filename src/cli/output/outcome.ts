import { type Charged, exitCodes, type MgwError } from '../../errors.ts';
import { isObject } from '../../json.ts';
import { escapeControls } from '../../printable.ts';
import type { Context } from '../context.ts';
import type { Globals } from '../options.ts';
import { type ServerFlags, withGlobals } from '../../flows/next.ts';
import type { JobFile } from '../../job.ts';
import type { Signals } from '../../payment/pay-once.ts';

/** The outcome of a command, printed in one place as text or as one JSON document (design 2). */
export interface Outcome {
  /** Members of the JSON document in addition to `ok`, `exit_code` and `error`. */
  json: Record<string, unknown>;
  /** The text for stdout without `--json`: data only, without a newline at the end. */
  text?: string;
  error?: MgwError;
  /** Records that the outcome was printed. Only outcomes of paid commands have this callback. */
  onPrinted?: () => Promise<void>;
  /** Whether the command was charged. Set only if repeating the command would pay again. Reported if printing fails. */
  paid?: Charged;
  /** Whether the outcome is reported to a workflow. Set only in `main`. */
  isRun?: boolean;
  /** Help to print on stderr above the error. */
  help?: string;
  /** Whether the command has written its data itself. */
  silent?: boolean;
  /** Overrides the exit code, for example with `partial` if some of several jobs failed. */
  exitCode?: number;
  /** Explains exit code `partial`; by default, some jobs failed or have not finished. */
  partialText?: string;
}

/** Returns an outcome's exit code. */
export function exitCodeOf(outcome: Outcome): number {
  return outcome.exitCode ?? outcome.error?.exitCode ?? exitCodes.ok;
}

/**
 * Returns a command's JSON document (design 2), without a newline at the end.
 * @param globals the global flags. `fields` contains the members to keep in the document and in its objects; all if
 * undefined. `ok`, `exit_code` and `error` are always kept.
 */
export function jsonDocument(outcome: Outcome, globals: Globals): string {
  const { fields } = globals;
  const exitCode = exitCodeOf(outcome);
  const document = {
    ok: exitCode === 0,
    exit_code: exitCode,
    ...(fields === undefined ? outcome.json : withFields(outcome.json, fields)),
    ...(outcome.error && { error: errorView(outcome.error, globals) }),
  };
  return escapeControls(JSON.stringify(document, undefined, 2));
}

function withFields(json: Record<string, unknown>, fields: readonly string[]): Record<string, unknown> {
  const members = Object.entries(json).flatMap(([name, value]): [string, unknown][] => {
    // Always keep `handle`, because the handle of an unrecorded job is printed nowhere else.
    if (fields.includes(name) || name === 'handle') return [[name, value]];
    if (typeof value !== 'object' || value === null) return [];
    return [
      [name, Array.isArray(value) ? value.map((one) => pickFields(one, fields)) : pickFields(value, fields)],
    ];
  });
  return Object.fromEntries(members);
}

function pickFields(value: unknown, fields: readonly string[]): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => fields.includes(name)));
}

/**
 * Compares the names in `--fields` with the members of the document. If the document has any of the names, the others
 * may be optional members, so no name is reported as unknown. The same applies if the document has an empty list,
 * because any name may be a member of the list's entries. `known` contains the names of the document's members.
 */
export function unknownFields(
  json: Record<string, unknown>,
  fields: readonly string[],
): { unknown: readonly string[]; known: readonly string[] } {
  const parts = Object.values(json).flatMap((value): unknown[] => (Array.isArray(value) ? value : [value]));
  const isEmpty = Object.values(json).some((value) => Array.isArray(value) && value.length === 0);
  const knownNames = new Set([
    ...['ok', 'exit_code', 'error', ...Object.keys(json)],
    ...parts.flatMap((part) => (isObject(part) ? Object.keys(part) : [])),
  ]);
  const isKnown = isEmpty || fields.some((name) => knownNames.has(name));
  return { unknown: isKnown ? [] : fields, known: [...knownNames] };
}

/** Returns the JSON representation of an error. Its `next` command uses the gateway and ledger of the global flags. */
export function errorView(error: MgwError, globals: ServerFlags): Record<string, unknown> {
  return {
    code: error.code,
    message: error.message,
    charged: error.charged,
    retry: error.retry,
    next: withGlobals(error, globals).next,
    request_id: error.requestId,
    budget: error.budget,
  };
}

// Limits the load on the gateway and the number of open files.
const defaultConcurrency = 8;

/**
 * Returns the outcome of a command that accepts several REFs. A single outcome is returned unchanged. Several outcomes
 * are returned in the order of the REFs, with exit 11 if some failed (design 2). An interruption is reported once for
 * all REFs: exit 130 or 143.
 */
export async function runForRefs(
  refs: readonly string[],
  runOne: (ref: string) => Promise<Outcome>,
  { progress, globals }: Pick<Context, 'progress' | 'globals'>,
  concurrency = defaultConcurrency,
): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  // All workers share one iterator, so that each REF is processed once.
  const remaining = refs.entries();
  const work = async (): Promise<void> => {
    for (const [index, ref] of remaining) outcomes[index] = await runOne(ref);
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, refs.length) }, work));
  const [first, ...others] = outcomes;
  if (first !== undefined && others.length === 0) return first;
  const interrupted = outcomes.flatMap(({ error }) => (error && isInterruption(error) ? [error] : []));
  for (const [index, { error }] of outcomes.entries())
    if (error !== undefined && !interrupted.includes(error))
      progress.note(`${refs[index] ?? ''}: ${error.message}`);
  const combined = combineOutcomes(outcomes, refs, globals);
  if (interrupted[0] === undefined) return combined;
  return {
    ...combined,
    error: combineInterruptions(interrupted[0], interrupted),
    exitCode: interrupted[0].exitCode,
  };
}

/** Whether an error reports an interruption by a signal. */
export function isInterruption({ exitCode }: MgwError): boolean {
  return exitCode === exitCodes.interrupted || exitCode === exitCodes.terminated;
}

// Returns the first interruption, with a next command for the jobs of all interruptions.
function combineInterruptions(first: MgwError, all: readonly MgwError[]): MgwError {
  const ids = all.flatMap(({ job }) => (job === undefined ? [] : [job.id]));
  const at = first.next?.indexOf(first.job?.id ?? '') ?? -1;
  if (all.length === 1 || first.next === undefined || at < 1) return first;
  const next = ['mgw', 'jobs', ...first.next.slice(at - 1, at), ...ids, ...first.next.slice(at + 1)];
  return first.with({ next, job: undefined }, `Interrupted; ${ids.length} jobs continue.`);
}

function combineOutcomes(outcomes: readonly Outcome[], refs: readonly string[], globals: Globals): Outcome {
  const jobs = outcomes.map(({ json, error }, index) => ({
    ref: refs[index],
    ...(json['job'] as object | undefined),
    ...(error && { outcome: errorView(error, globals) }),
  }));
  const files = outcomes.flatMap(({ json }) => (json['files'] as JobFile[] | undefined) ?? []);
  const hasFailed = outcomes.some(({ error }) => error !== undefined);
  return {
    json: { jobs, ...(files.length > 0 && { files }) },
    text: outcomes.flatMap(({ text }) => (text ? [text] : [])).join('\n'),
    exitCode: hasFailed ? exitCodes.partial : exitCodes.ok,
    onPrinted: async () => {
      for (const { onPrinted } of outcomes) await onPrinted?.();
    },
  };
}

/**
 * Returns dependencies with separate signals for one of many jobs, because the more listeners a signal has, the slower
 * it is to add or remove one.
 */
export function withOwnSignals<Deps extends { signals: Signals }>(deps: Deps): Deps {
  const { soft, hard } = deps.signals;
  return { ...deps, signals: { soft: AbortSignal.any([soft]), hard: AbortSignal.any([hard]) } };
}
