import { exitCodes, type MgwError } from '../../errors.ts';
import type { Job } from '../../job.ts';
import { shownState } from '../../jobs/reconcile.ts';
import { printable, printableLine } from '../../printable.ts';

/** An error as a person reads it: what happened, whether money was spent, what to type next. */
export function errorText(error: MgwError): string {
  const lines = [`mgw: ${printable(error.message)}`, `  ${costOf(error)} (exit ${error.exitCode})`];
  // Many gateways say it in the message already.
  if (error.requestId !== undefined && !error.message.includes(error.requestId))
    lines.push(`  request id: ${printableLine(error.requestId, 200)}`);
  if (error.next !== undefined) lines.push(`  next: ${error.next.map(shellWord).join(' ')}`);
  return lines.join('\n');
}

function costOf(error: MgwError): string {
  const charged = {
    no: 'Nothing was charged.',
    maybe: 'It may have been charged.',
    yes: 'The submission was charged.',
  }[error.charged];
  const retry = {
    safe: ' Running it again is safe.',
    resume: ' Running it again resumes; it does not submit again.',
    never: '',
  }[error.retry];
  return error.exitCode === exitCodes.usage ? 'Nothing was sent.' : `${charged}${retry}`;
}

/** A word as a POSIX shell takes it. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** One line for one job, as `status` prints it. */
export function jobLine(job: Job): string {
  const progress = job.progress === undefined ? '' : ` ${job.progress}%`;
  const native = job.native_status ? ` (${printableLine(job.native_status, 60)})` : '';
  const error =
    job.error && shownState(job) !== 'succeeded' ? ` ${printableLine(job.error.message, 200)}` : '';
  return `${job.id} ${shownState(job)}${native}${progress}${error}`;
}

/** A table with a head; cells are made printable, columns padded, and no colour is used. */
export function table(head: string[], rows: string[][]): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => printableLine(cell, 200)));
  // Not spread into Math.max: a call takes some hundred thousand arguments, and a list may be longer.
  const widths = head.map((_, column) =>
    cells.reduce((widest, row) => Math.max(widest, width(row[column] ?? '')), 0),
  );
  const line = (row: string[]): string =>
    row.map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell))).join('  ');
  return cells.map((row) => line(row).trimEnd()).join('\n');
}

// Columns of a terminal: what East Asian scripts and emoji take twice, and marks not at all.
function width(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  const wide = text.match(
    /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff01-\uff60\p{Emoji_Presentation}]/gu,
  );
  const none = text.match(/[\p{Mn}\p{Me}]|\u200d/gu);
  const characters = text.match(/[^]/gu);
  return (characters?.length ?? 0) + (wide?.length ?? 0) - (none?.length ?? 0);
}

/** A time in the past as a person says it. */
export function ago(iso: string, now: number): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(iso)) / 1000));
  if (seconds < 90) return `${seconds}s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}m ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)}h ago`;
  return `${Math.round(seconds / 86_400)}d ago`;
}
