import { randomUUID } from 'node:crypto';
import { appendFile } from 'node:fs/promises';
import type { Context } from '../context.ts';
import { shellWord } from './human.ts';
import { exitCodeOf, type Outcome } from './outcome.ts';
import { exitCodes, messageOf, type MgwError } from '../../errors.ts';
import { currencyOf } from '../../flows/prices.ts';
import type { JobFile } from '../../job.ts';
import { printable, printableLine } from '../../printable.ts';
import { withoutSignatures } from '../../redact.ts';

/** The parts of a context that are needed to report to a workflow. */
export interface WorkflowContext extends Pick<Context, 'redact' | 'settings'> {
  io: Pick<Context['io'], 'env'>;
  progress: Pick<Context['progress'], 'note'>;
}

interface JobView {
  /** The job's REF, if the command had several REFs. */
  ref?: string;
  id?: string;
  state?: string;
  model?: string;
  key?: string;
  cost?: { at_most?: string };
  /** The error, if the command failed for this REF. */
  outcome?: { message: string };
}

/**
 * Reports to a GitHub workflow the outcome of a command that ran jobs: its outputs (`job`, `state`, `file`, `exit_code`
 * …) and a table in the step's summary, if the runner provides files for them. Never throws, because the command has
 * already done its work.
 */
export async function reportToWorkflow(outcome: Outcome, context: WorkflowContext): Promise<void> {
  const { json } = outcome;
  const jobs = jobsOf(json);
  const files = (json['files'] as JobFile[] | undefined) ?? [];
  await appendTo('GITHUB_OUTPUT', outputsText(jobs, files, exitCodeOf(outcome)), context);
  // The settings of a command that paid are valid.
  const currency = jobs.some(({ cost }) => cost) ? currencyOf(await context.settings()) : '';
  await appendSummary('mgw', (cell) => summaryLines(outcome, jobs, files, currency, cell), context);
}

function jobsOf(json: Outcome['json']): JobView[] {
  const jobs = json['jobs'] as JobView[] | undefined;
  const job = json['job'] as JobView | undefined;
  return jobs ?? (job === undefined ? [] : [job]);
}

function outputsText(jobs: readonly JobView[], files: readonly JobFile[], exitCode: number): string {
  const ids = jobs.flatMap(({ id }) => id ?? []);
  const paths = files.map(({ path }) => path);
  const outputs = {
    job: ids.at(-1) ?? '',
    jobs: ids.join('\n'),
    state: jobs.findLast(({ id }) => id !== undefined)?.state ?? '',
    file: paths[0] ?? '',
    files: paths.join('\n'),
    exit_code: String(exitCode),
  };
  return Object.entries(outputs)
    .map(([name, value]) => outputText(name, value))
    .join('');
}

// Uses an unpredictable delimiter, so that a value cannot end early and add another output.
function outputText(name: string, value: string): string {
  const delimiter = `mgw_${randomUUID()}`;
  return `${name}<<${delimiter}\n${value}\n${delimiter}\n`;
}

function summaryLines(
  { error }: Outcome,
  jobs: readonly JobView[],
  files: readonly JobFile[],
  currency: string,
  cell: Cell,
): string[] {
  const rows = jobs.map(({ ref = '', id, key, model = '', state, cost, outcome }) => [
    key === undefined ? (id ?? ref) : `${id ?? ref} (${key})`,
    model,
    state ?? outcome?.message ?? '',
    id === undefined ? '' : costText(state, cost?.at_most, currency),
  ]);
  const saved = files.map(({ path, bytes }) => `- ${cell(path)}, ${bytes} bytes`);
  const next = error?.next === undefined ? '' : ` Next: ${codeSpan(error.next.map(shellWord).join(' '))}`;
  return [
    ...(rows.length > 0 ? markdownTable(['job', 'model', 'state', 'cost at most'], rows, cell) : []),
    ...(saved.length > 0 ? ['', ...saved] : []),
    ...(error === undefined ? [] : ['', `${cell(error.message)}${next}`]),
  ];
}

// A refused or unsent submission costs nothing, even if its price is unknown.
function costText(state: JobView['state'], atMost: string | undefined, currency: string): string {
  const amount = state === 'rejected' || state === 'prepared' ? '0' : atMost;
  return amount === undefined ? 'unknown' : `${amount} ${currency}`.trim();
}

// The delimiters are longer than any sequence of backticks in the text, so no backtick in the text ends the span.
function codeSpan(text: string): string {
  const runs = text.match(/`+/g) ?? [];
  const delimiter = '`'.repeat(runs.reduce((maxLength, { length }) => Math.max(maxLength, length), 0) + 1);
  const line = text.replace(/\s+/g, ' ');
  return delimiter === '`' ? `\`${line}\`` : `${delimiter} ${line} ${delimiter}`;
}

/** Formats text for Markdown: on one line, without secrets, and escaped. */
type Cell = (text: string) => string;

function markdownTable(head: readonly string[], rows: readonly (readonly string[])[], cell: Cell): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map((row) => line(row.map(cell)))];
}

/** Adds a section with the given unfinished rows of a batch, to the step's summary. Never throws. */
export function appendRows(
  title: string,
  summary: string,
  rows: readonly { id: string; state: string; reason: string; next: readonly string[] }[],
  context: WorkflowContext,
): Promise<void> {
  const cells = rows.map(({ id, state, reason, next }) => [id, state, reason, next.map(shellWord).join(' ')]);
  const head = ['row', 'state', 'reason', 'next'];
  return appendSummary(
    title,
    (cell) => [cell(summary), ...(cells.length === 0 ? [] : ['', ...markdownTable(head, cells, cell)])],
    context,
  );
}

// Adds a section to the step's summary, if the runner provides a file for it. Never throws.
async function appendSummary(
  title: string,
  lines: (cell: Cell) => readonly string[],
  context: WorkflowContext,
): Promise<void> {
  // Redacts before escaping, because an escaped secret is not recognized.
  const cell: Cell = (text) =>
    printableLine(withoutSignatures(context.redact(text)), 1000).replace(/[|\\`<>&*_~[\]]/g, '\\$&');
  await appendTo('GITHUB_STEP_SUMMARY', [`### ${title}`, '', ...lines(cell), '', ''].join('\n'), context);
}

async function appendTo(
  name: 'GITHUB_OUTPUT' | 'GITHUB_STEP_SUMMARY',
  text: string,
  context: WorkflowContext,
): Promise<void> {
  const path = context.io.env[name];
  if (!path) return;
  await appendFile(path, withoutSignatures(context.redact(text))).catch((error: unknown) =>
    context.progress.note(`${name} cannot be written: ${messageOf(error)}`),
  );
}

/** Formats an error as a workflow annotation. The annotation is a warning if the job continues and can be resumed. */
export function annotation(error: MgwError): string {
  const { code, exitCode, message, next } = error;
  const resumableCodes: number[] = [exitCodes.pending, exitCodes.interrupted, exitCodes.terminated];
  const level = resumableCodes.includes(exitCode) ? 'warning' : 'error';
  const safeMessage = printable(message);
  const text = next === undefined ? safeMessage : `${safeMessage}\nnext: ${next.map(shellWord).join(' ')}`;
  return `::${level} title=${escapedProperty(`mgw: ${code} (exit ${exitCode})`)}::${escapedData(text)}`;
}

function escapedData(text: string): string {
  return text
    .replaceAll('##[', '## [')
    .replaceAll('%', '%25')
    .replaceAll('\r', '%0D')
    .replaceAll('\n', '%0A');
}

function escapedProperty(text: string): string {
  return escapedData(text).replaceAll(':', '%3A').replaceAll(',', '%2C');
}
