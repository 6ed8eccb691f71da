import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { withLabel } from '../../help/wrap.ts';
import { columnsOf } from '../../io.ts';
import { readRefs } from '../../input.ts';
import { type Outcome, runForRefs } from '../../output/outcome.ts';
import { size } from '../../output/progress.ts';
import { currencyOf } from '../../../flows/prices.ts';
import { toMgwError } from '../../../errors.ts';
import type { Goal, Job, JobError, RecordedEvent } from '../../../job.ts';
import { recordedJob } from '../../../jobs/ref.ts';
import { jobView } from '../../../jobs/view.ts';
import { printable, printableLine } from '../../../printable.ts';

/** `mgw jobs show REF...`: shows everything recorded about jobs. Sends no request. */
export function registerShow(command: Command, run: Run): void {
  command
    .argument('<refs...>', 'job ids, @key, @last or gateway handles; - reads them from stdin')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs show @last\n  $ mgw jobs show @last --json\n  $ mgw --sandbox jobs show @last',
    )
    .action((refs: string[]) => run(command, (context) => showAll(context, refs)));
}

async function showAll(context: Context, refArgs: string[]): Promise<Outcome> {
  const refs = await readRefs(refArgs, context.io);
  if (refs.length === 1) return show(context, refs[0] ?? '');
  // Ends each job's text with an empty line.
  const one = async (ref: string): Promise<Outcome> => {
    const { json, text = '' } = await show(context, ref);
    return { json: { job: { ...(json['job'] as object), history: json['history'] } }, text: `${text}\n` };
  };
  return runForRefs(
    refs,
    (ref) => one(ref).catch((error: unknown) => ({ json: {}, error: toMgwError(error) })),
    context,
  );
}

async function show(context: Context, ref: string): Promise<Outcome> {
  const ledger = await context.ledger();
  const job = await recordedJob(ledger, ref);
  const events = await ledger.events(job.id);
  const history = events.map((event) => ({
    at: event?.at,
    event: event?.type ?? 'damaged',
    text: eventText(event),
    ...(event?.type === 'reply' && { reply: event.reply.text }),
  }));
  const width = columnsOf(context.io.stdout) ?? Infinity;
  const unit = ` ${currencyOf(await context.settings())}`;
  const text = [...membersOf(job, width, unit), '', ...historyOf(events, width, unit)].join('\n');
  return { json: { job: jobView(job), history }, text };
}

const labelWidth = 14;

function membersOf(job: Job, width: number, unit: string): string[] {
  const amounts =
    job.cost && Object.entries(job.cost).map(([name, amount]) => [name, `${String(amount)}${unit}`]);
  const view = { ...jobView(job), cost: amounts && (Object.fromEntries(amounts) as object) };
  const members = Object.entries(view).filter(([, value]) => value !== undefined);
  return members.flatMap(([name, value]) => withLabel(name, labelWidth, linesOf(value), width));
}

function linesOf(value: unknown): string[] {
  if (typeof value === 'string') return [printableLine(value)];
  return printable(JSON.stringify(value, undefined, 2)).split('\n');
}

const narrowWidth = 60;

function historyOf(events: readonly (RecordedEvent | undefined)[], width: number, unit: string): string[] {
  const times = events.map((event) => timeText(event?.at, width < narrowWidth));
  const columnWidth = Math.max(0, ...times.map((time) => time.length)) + 2;
  return events.flatMap((event, index) =>
    withLabel(times[index] ?? '', columnWidth, [eventText(event, unit), ...bodyLines(event)], width),
  );
}

const maxBodyLength = 4096;

// Returns the body of a recorded response, in which the user may find the handle of a task in doubt (design 5).
function bodyLines(event: RecordedEvent | undefined): string[] {
  if (event?.type !== 'reply' || event.reply.text === '') return [];
  return printable(event.reply.text, maxBodyLength).trimEnd().split('\n');
}

function timeText(at: string | undefined, isShort: boolean): string {
  const [day = '', time = ''] = (at ?? '').replace(/\.\d+Z$/, 'Z').split('T');
  return isShort ? time : `${day} ${time}`;
}

/**
 * Describes an event of a job's record in one line; `undefined` means that the record's line is unreadable.
 * @param unit the unit of amounts, after a space
 */
function eventText(event: RecordedEvent | undefined, unit = ''): string {
  return event === undefined ? 'an unreadable line of the record' : printableLine(textOf(event, unit), 500);
}

function textOf(event: RecordedEvent, unit: string): string {
  switch (event.type) {
    case 'prepared':
      return `recorded for ${event.base_url || 'an unknown gateway'}; nothing has been sent yet`;
    case 'began':
      return `${commandText(event)} (process ${event.owner.pid})`;
    case 'sending':
      return `attempt ${event.attempt}: sending${costText(event.cost?.at_most, unit)}`;
    case 'reply':
      return `attempt ${event.attempt}: the gateway responded with ${event.reply.status}${event.reply.complete ? '' : '; the body was not completely recorded'}`;
    case 'unavailable':
      return `attempt ${event.attempt}: not processed, nothing was charged: ${errorText(event.error)}`;
    case 'rejected':
      return `${event.attempt === undefined ? '' : `attempt ${event.attempt}: `}rejected, nothing was charged: ${errorText(event.error)}`;
    case 'unknown':
      return `it is unknown whether the submission was accepted: ${errorText(event.error)}`;
    case 'resolved':
      return resolutionTexts[event.how];
    case 'rated':
      return `rated ${event.rating ?? '-'}${event.note === undefined ? '' : `: ${event.note}`}`;
    case 'accepted':
      return `accepted as ${event.handle}${nativeText(event.native_status)}`;
    case 'observed':
    case 'finished':
      return observationText(event);
    case 'file':
      return `saved ${event.file.path} (${size(event.file.bytes)})`;
    case 'uploading':
      return `uploading to ${event.url}`;
    case 'delivered':
      return 'the result was delivered to the command';
    case 'detached':
      return `the command exited with ${event.exit_code}`;
  }
}

const resolutionTexts = {
  adopted: 'resolved by the user: the task exists',
  'not-created': 'resolved by the user: the task does not exist',
  resubmit: 'resolved by the user: submit again',
};

const askTexts = { accept: 'accepted', finish: 'finished', file: 'saved' };

function commandText({ command, ask, output }: Goal): string {
  if (command === 'rm') return 'a command started to remove the job';
  const where = output === undefined ? '' : ` to ${output === '-' ? 'standard output' : output}`;
  return `a ${command} command started; it runs until the job is ${askTexts[ask]}${where}`;
}

function observationText(event: RecordedEvent & { type: 'observed' | 'finished' }): string {
  const percent = event.progress === undefined ? '' : ` ${Math.round(event.progress)}%`;
  const error = event.type === 'finished' && event.error ? `: ${errorText(event.error)}` : '';
  return `${event.state}${nativeText(event.native_status)}${percent}${error}`;
}

function nativeText(native: string | undefined): string {
  return native ? ` (${native})` : '';
}

function costText(cost: string | undefined, unit: string): string {
  return cost === undefined ? ', at an unknown price' : `, at most ${cost}${unit}`;
}

function errorText({ code, message }: JobError): string {
  return `${message} [${code}]`;
}
