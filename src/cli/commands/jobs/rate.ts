import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { readInputFile } from '../../input.ts';
import { decodeUtf8, readStdin } from '../../io.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { exitCodes, usageError } from '../../../errors.ts';
import type { Job, Rating } from '../../../job.ts';
import { maxNoteLength, rateJob, jobView, readRatings } from '../../../jobs/view.ts';
import { recordedJob } from '../../../jobs/ref.ts';
import { printableLine } from '../../../printable.ts';

interface RateOptions {
  note?: string;
  clear?: boolean;
  import?: string;
}

const examples = `
Examples:
  $ mgw jobs rate @last 4 --note "the sea is too calm"
  $ mgw jobs rate @last 2
  $ mgw jobs rate @last --clear`;

/** `mgw jobs rate REF 4 --note TEXT | --import ratings.json`: records ratings and notes for results. */
export function registerRate(command: Command, run: Run): void {
  command
    .argument('[ref]', 'job id, @key, @last or a gateway handle')
    .argument('[rating]', '1 (bad) to 5 (good)')
    .addOption(single('--note <text>', 'a note, which replaces the previous note', noteText))
    .option('--clear', 'remove the rating and the note')
    .addOption(single('--import <file>', "import a gallery's ratings.json; - reads it from stdin"))
    .addHelpText('after', examples)
    .action((ref: string | undefined, rating: string | undefined) =>
      run(command, (context) => rate(context, ref, rating, command.opts())),
    );
}

function noteText(text: string): string {
  if (text.length <= maxNoteLength) return text;
  throw new Error(`text of at most ${maxNoteLength} characters`);
}

async function rate(
  context: Context,
  ref: string | undefined,
  ratingArgument: string | undefined,
  options: RateOptions,
): Promise<Outcome> {
  const { note, clear = false, import: file } = options;
  // Loads the key, so that `redact` removes it from notes.
  await context.hideKey();
  if (file !== undefined) {
    if (ref !== undefined || note !== undefined || clear)
      throw usageError('--import cannot be combined with other arguments.');
    return importRatings(context, file);
  }
  if (ref === undefined) throw usageError('A REF and a rating are required, or --import FILE.');
  if (
    clear
      ? ratingArgument !== undefined || note !== undefined
      : ratingArgument === undefined && note === undefined
  )
    throw usageError('Use a rating from 1 to 5, --note TEXT, or both; or --clear alone.');
  if (ratingArgument !== undefined && !/^[1-5]$/.test(ratingArgument))
    throw usageError(
      `${printableLine(ratingArgument, 60) || '""'} is not a rating. Use 1 (bad) to 5 (good).`,
    );
  const ledger = await context.ledger();
  const found = await recordedJob(ledger, ref);
  const rating = ratingArgument === undefined ? found.rating : Number(ratingArgument);
  const job = await rateJob(
    ledger,
    found.id,
    clear ? {} : { rating, note: note === undefined ? found.note : context.redact(note) },
  );
  return { json: { job: jobView(job) }, text: lineOf(job) };
}

function lineOf({ id, rating, note }: Job): string {
  const words = [
    id,
    rating === undefined ? 'not rated' : `rated ${rating}`,
    note && printableLine(note, 200),
  ];
  return words.filter((word) => word !== undefined && word !== '').join(' ');
}

function isSame(job: Job, { rating, note }: Rating): boolean {
  return job.rating === rating && (job.note ?? '') === (note ?? '').trim();
}

// Imports ratings. The latest rating of a job takes precedence, regardless of the machine that recorded it.
async function importRatings(context: Context, file: string): Promise<Outcome> {
  const text =
    file === '-' ? await readStdin(context.io) : decodeUtf8(await readInputFile(file, '--import'), file);
  const ledger = await context.ledger();
  const ratings = readRatings(context.redact(text), file === '-' ? 'Standard input' : file);
  const rated: Job[] = [];
  const [unknown, older]: [string[], string[]] = [[], []];
  for (const { job: id, at, ...imported } of ratings) {
    const job = await ledger.read(id);
    if (job === undefined) unknown.push(id);
    else if (!isSame(job, imported) && (job.rated_at ?? '') > at) older.push(id);
    else rated.push(await rateJob(ledger, id, imported));
  }
  if (unknown.length > 0)
    context.progress.note(`Skipped jobs that are not in this ledger: ${unknown.join(', ')}.`);
  if (older.length > 0)
    context.progress.note(`Skipped jobs that were rated here more recently: ${older.join(', ')}.`);
  const json = {
    rated: rated.map(jobView),
    ...(unknown.length > 0 && { unknown }),
    ...(older.length > 0 && { older }),
  };
  const exitCode = unknown.length > 0 ? exitCodes.partial : exitCodes.ok;
  return { json, text: rated.map(lineOf).join('\n'), exitCode };
}
