import type { Command } from 'commander';
import type { Job, RecordedEvent } from '../../../job.ts';
import { recordedJob } from '../../../jobs/ref.ts';
import { printable, printableLine } from '../../../printable.ts';
import type { Context } from '../../context.ts';
import { eventText } from '../../output/history.ts';
import { jobView } from '../../../jobs/view.ts';
import { wrapped } from '../../help/wrap.ts';
import type { Outcome } from '../../output/outcome.ts';
import { widthOf } from '../../output/text-width.ts';
import type { Run } from '../../action.ts';
import { columnsOf } from '../../io.ts';

/** `mgw jobs show REF`: everything that the ledger knows about a job, without a request. */
export function registerShow(command: Command, run: Run): void {
  command
    .argument('<ref>', 'job id, @key, @last, or a handle of the gateway')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs show @last\n  $ mgw jobs show @last --json\n  $ mgw --sandbox jobs show @last',
    )
    .action((ref: string) => run(command, (context) => show(context, ref)));
}

async function show(context: Context, ref: string): Promise<Outcome> {
  const ledger = await context.ledger();
  const job = await recordedJob(ledger, ref);
  const events = await ledger.events(job.id);
  const history = events.map((event) => ({
    at: event?.at,
    event: event?.type ?? 'damaged',
    text: eventText(event),
  }));
  const width = columnsOf(context.io.stdout) ?? Infinity;
  const text = [...membersOf(job, width), '', ...historyOf(events, width)].join('\n');
  return { json: { job: jobView(job), history }, text };
}

const labelWidth = 14;

function membersOf(job: Job, width: number): string[] {
  const members = Object.entries(jobView(job)).filter(([, value]) => value !== undefined);
  return members.flatMap(([name, value]) => labelled(name, labelWidth, linesOf(value), width));
}

function linesOf(value: unknown): string[] {
  if (typeof value === 'string') return [printableLine(value)];
  return printable(JSON.stringify(value, undefined, 2)).split('\n');
}

const narrow = 60;

function historyOf(events: readonly (RecordedEvent | undefined)[], width: number): string[] {
  const times = events.map((event) => timeText(event?.at, width < narrow));
  const room = Math.max(0, ...times.map((time) => time.length)) + 2;
  return events.flatMap((event, index) => labelled(times[index] ?? '', room, [eventText(event)], width));
}

function timeText(at: string | undefined, isShort: boolean): string {
  const [day = '', time = ''] = (at ?? '').replace(/\.\d+Z$/, 'Z').split('T');
  return isShort ? time : `${day} ${time}`;
}

function labelled(label: string, room: number, lines: readonly string[], width: number): string[] {
  const broken = lines.flatMap((line) => wrapped(line, Math.max(8, width - room), '', widthOf).split('\n'));
  return broken.map((line, index) => `${(index === 0 ? label : '').padEnd(room)}${line}`.trimEnd());
}
