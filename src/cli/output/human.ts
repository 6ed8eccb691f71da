import { exitCodes, type MgwError } from '../../errors.ts';
import { commandWithGlobals, type ServerFlags } from '../../flows/next.ts';
import type { Job, JobState } from '../../job.ts';
import { shownState } from '../../jobs/reconcile.ts';
import { printable, printableLine } from '../../printable.ts';
import { wrapWords, wrap, wrapCommand, widthOf } from '../help/wrap.ts';
import type { Writable } from 'node:stream';

/**
 * Adds the flags for the same gateway and ledger to each command in a note or a hint, such as
 * `To log in: mgw auth login`.
 */
export function textWithGlobals(text: string, globals: ServerFlags): string {
  return text.replace(/(?<=: )mgw ([a-z]+)/g, (_, command: string) => commandText(['mgw', command], globals));
}

/** Formats a command for a POSIX shell, with the flags for the same gateway and ledger. */
export function commandText(command: readonly string[], globals: ServerFlags): string {
  return commandWithGlobals(command, globals).map(shellWord).join(' ');
}

/**
 * Formats an error as text: what happened, whether money was spent, the next command. If `width` is given, lines
 * have at most that many columns.
 */
export function errorText(error: MgwError, width = Number.POSITIVE_INFINITY): string {
  // A gateway's text must not look like the lines that mgw adds.
  const message = printable(error.message).replace(/\n[ \t]{0,8}(?=(?:next|request id):)/gi, ' ');
  const lines = [`mgw: ${message}`, `  ${chargeText(error)} (exit ${error.exitCode})`];
  // Many gateways include the request id in the message, so do not repeat it.
  if (error.requestId !== undefined && !error.message.includes(error.requestId))
    lines.push(`  request id: ${printableLine(error.requestId, 200)}`);
  // A command inside a message must still be pasteable.
  const wrappedLines = lines
    .flatMap((line) => line.split('\n'))
    .map((line) =>
      line.startsWith('mgw ') ? wrapCommand(line, width, '    ') : wrap(line, width, '  ', widthOf),
    );
  const { next } = error;
  return [...wrappedLines, ...(next ? [wrapWords(next.map(shellWord), width, '  next: ', '    ')] : [])].join(
    '\n',
  );
}

function chargeText(error: MgwError): string {
  const { parts } = error;
  const charged = {
    no: 'Nothing was charged.',
    maybe: parts === undefined ? 'It may have been charged.' : `Some ${parts} may have been charged.`,
    yes: parts === undefined ? 'The submission was charged.' : `The accepted ${parts} were charged.`,
  }[error.charged];
  const retry = {
    safe: ' Running it again is safe.',
    resume:
      parts === undefined
        ? ' Running it again resumes; it does not submit again.'
        : ` Running it again pays only for the other ${parts}.`,
    never: '',
  }[error.retry];
  if (error.exitCode === exitCodes.usage) return 'Nothing was sent.';
  return `${charged}${retry}`;
}

/**
 * Quotes a word for a POSIX shell. A word with control characters is quoted for bash, zsh and ksh, so that the
 * characters themselves are not printed.
 */
export function shellWord(word: string): string {
  if (/^[\w@%+=:,./-]+$/.test(word)) return word;
  if (printable(word, word.length) === word) return `'${word.replaceAll("'", `'\\''`)}'`;
  const ansi = Array.from(word, (character) =>
    printable(character) === character ? character.replace(/['\\]/, '\\$&') : ansiEscape(character),
  );
  return `$'${ansi.join('')}'`;
}

function ansiEscape(character: string): string {
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return code.length > 4 ? `\\U${code.padStart(8, '0')}` : `\\u${code.padStart(4, '0')}`;
}

/** Formats a job as `status` prints it: on one line, or wrapped at `width` columns if `width` is given. */
export function jobLine(job: Job, width = Number.POSITIVE_INFINITY): string {
  const progress = job.progress === undefined ? '' : ` ${job.progress}%`;
  const native = job.native_status ? ` (${printableLine(job.native_status, 60)})` : '';
  const error =
    job.error && shownState(job) !== 'succeeded' ? ` ${printableLine(job.error.message, 200)}` : '';
  return wrap(`${job.id} ${shownState(job)}${native}${progress}${error}`, width, '  ', widthOf);
}

/** Describes a time in the past, such as `5m ago`. */
export function ago(iso: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 90) return `${seconds}s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}m ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)}h ago`;
  return `${Math.round(seconds / 86_400)}d ago`;
}

/** Returns text in a colour or weight, or plain if the stream supports neither. */
export type Paint = (style: Style, text: string) => string;

type Style = keyof typeof codes;

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 };

/** A stream that may be a terminal. */
type Terminal = Writable & { isTTY?: boolean; columns?: number };

/** Returns text unchanged, without colours. */
export const plain: Paint = (_, text) => text;

/**
 * Returns a stream's colours: none if it is not a terminal, does not support colours, or the user has disabled them,
 * for example by `--no-color` (`color`).
 */
export function paintOn({ isTTY }: Terminal, env: NodeJS.ProcessEnv, color = true): Paint {
  const isSupported = color && isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb';
  return isSupported ? (style, text) => (text === '' ? '' : `\x1b[${codes[style]}m${text}\x1b[0m`) : plain;
}

const styleOfState: Record<JobState, Style> = {
  prepared: 'dim',
  sending: 'cyan',
  queued: 'cyan',
  running: 'cyan',
  unknown: 'yellow',
  succeeded: 'green',
  failed: 'red',
  rejected: 'red',
};
const jobAndState = new RegExp(
  `^(job_\\w+ +(?:[a-z][a-z0-9-]* +)?)(${Object.keys(styleOfState).join('|')})(?=[ :]|$)`,
  'gm',
);

/** Colours the state in each job's line, and leaves other lines unchanged. */
export function withStates(lines: string, paint: Paint): string {
  return lines.replace(
    jobAndState,
    (_, before: string, state: JobState) => before + paint(styleOfState[state], state),
  );
}
