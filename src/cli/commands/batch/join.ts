import { resolve } from 'node:path';
import { type Command, Option } from 'commander';
import type { Film } from '../../../batch/film.ts';
import { isOutputOf, type JoinPlan, type MissingRow, planJoin, joinClips } from '../../../batch/join.ts';
import { exitCodes, MgwError, usageError } from '../../../errors.ts';
import { savedFile } from '../../../flows/earlier-job.ts';
import { checkFfmpeg } from '../../../flows/ffmpeg.ts';
import { copiesIn } from '../../../flows/local-copies.ts';
import type { JobFile } from '../../../job.ts';
import { commandWithGlobals } from '../../../flows/next.ts';
import { isObjectUrl } from '../../../store-url.ts';
import { printableLine } from '../../../printable.ts';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { type Globals, outputOption } from '../../options.ts';
import { shellWord } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import {
  type RepeatCommand,
  commandOf,
  commandsFor,
  planView,
  rowView,
  reportProblems,
} from '../../output/plan.ts';
import { openNamed } from './known.ts';
import { planDepsOf } from './open.ts';
import { addManifestOptions, type BatchOptions, flagsAsTyped } from './options.ts';

interface JoinOptions extends Omit<BatchOptions, 'output'> {
  output?: string;
  skipMissing?: boolean;
}

const helpText = `
A speech row with over: ROW is mixed with the sound of that row's video. If all videos have the same parameters, they
are copied. Otherwise, all are re-encoded at the size of the first video. Nothing is sent to the gateway.

Examples:
  $ mgw batch join story.csv -o film.mp4
  $ mgw batch join story.csv -o film.mp4 --skip-missing --force
  $ mgw batch join story -o film.mp4 --json`;

/** `mgw batch join FILE -o film.mp4`: joins a batch's finished videos with ffmpeg. */
export function registerJoin(command: Command, run: Run): void {
  command.argument('<batch>', "the batch's file, or its name if it was run before");
  addManifestOptions(command);
  command
    .option('--skip-missing', 'skip rows that are not done')
    .addOption(outputOption('-o, --output <file>', 'the output file, which must end in .mp4'))
    .addOption(new Option('--force', 'overwrite the output').helpGroup('Output:'))
    .addHelpText('after', helpText)
    .action((nameOrFile: string) => run(command, (context) => join(context, nameOrFile, command.opts())));
}

async function join(
  context: Context,
  nameOrFile: string,
  { output, force = false, skipMissing = false, ...batchOptions }: JoinOptions,
): Promise<Outcome> {
  const path = filmPath(output);
  const { file, batch, options } = await openNamed(context, nameOrFile, batchOptions);
  const deps = await planDepsOf(context, batch, 'offline');
  const joinPlan = await planJoin(batch, deps, (job, count) => savedFile(context, job, 1, count));
  await reportProblems(context, file, { ...joinPlan.plan, repeated: [] });
  const json = { ...viewOf(joinPlan, batch), film: null };
  if (joinPlan.plan.bad > 0 && !skipMissing) return { json, error: invalidRows(joinPlan) };
  for (const { id, row, state, changedFile, needsPaidRetry } of joinPlan.missing) {
    const change = changedFile && `: ${printableLine(changedFile, 200)} has changed since it was saved`;
    const reason = needsPaidRetry
      ? `${change ?? ': its speech is gone'}, so a retry pays for it again`
      : (change ?? '');
    context.progress.note(`Missing: ${printableLine(id, 100)} (line ${row.line}), state ${state}${reason}.`);
  }
  if (joinPlan.clips.length === 0 || (joinPlan.missing.length > 0 && !skipMissing)) {
    const commands = commandsToMake(joinPlan, { file, flags: flagsAsTyped(options) }, context.globals);
    const isEmpty = joinPlan.missing.length === 0;
    context.progress.note(
      isEmpty
        ? 'No row in the file has a video. No film was written.'
        : 'No film was written. To make the missing rows:',
    );
    for (const command of commands) context.progress.note(`→ ${command.map(shellWord).join(' ')}`);
    return { json: { ...json, next: commands[0] }, exitCode: exitCodes.partial };
  }
  for (const note of joinPlan.notes) context.progress.note(note);
  checkNoInput(path, joinPlan);
  await checkFfmpeg();
  const target = { path, force, deadline: await context.deadline() };
  const reportFilm = ({ difference, notes }: Film): void => {
    if (difference !== undefined) context.progress.note(`Re-encoding the videos: ${difference}.`);
    for (const note of notes) context.progress.note(note);
  };
  const copies = await copiesIn(context);
  try {
    const pathOf = (each: JobFile): Promise<string> => copies.pathOf(each);
    const { film, ...details } = await joinClips(
      joinPlan.clips,
      target,
      await context.jobDeps(),
      pathOf,
      reportFilm,
    );
    const view = { ...details, seconds: film.seconds, is_copied: film.difference === undefined };
    return { json: { ...json, film: view }, text: path };
  } finally {
    await copies.close();
  }
}

// Returns the commands that make the missing rows, as `batch run` suggests them.
function commandsToMake({ missing }: JoinPlan, repeat: RepeatCommand, globals: Globals): string[][] {
  const rows = missing.map((row) => ({
    id: row.id,
    state: row.state,
    because: row.because,
    next: commandOf(row, row.state, repeat, rowError(row)),
  }));
  return commandsFor(rows, repeat).map((command) => commandWithGlobals(command, globals));
}

// Returns the error that `batch run` would report for the row: its path is occupied, or its speech is gone.
function rowError({ changedFile, needsPaidRetry }: MissingRow): MgwError | undefined {
  if (needsPaidRetry) return new MgwError('result_unavailable', 'The speech is gone.');
  return changedFile === undefined ? undefined : new MgwError('output_exists', `${changedFile} exists.`);
}

function filmPath(output: string | undefined): string {
  if (output === undefined) throw usageError('-o is required, such as -o film.mp4.');
  if (isObjectUrl(output)) throw usageError('-o must be a local path.');
  if (!/\.mp4$/i.test(output)) throw usageError(`-o: ${printableLine(output, 100)} does not end in .mp4.`);
  return resolve(output);
}

// Throws if the output path is a row's file, even with --force, because that file was paid for.
function checkNoInput(path: string, { rows }: JoinPlan): void {
  const row = rows.find((each) => isOutputOf(each, path));
  if (row !== undefined)
    throw usageError(
      `-o: ${printableLine(path, 200)} is an output file of row ${printableLine(row.id, 100)}.`,
    );
}

function invalidRows({ plan }: JoinPlan): MgwError {
  const what = plan.bad === 1 ? '1 row is invalid' : `${plan.bad} rows are invalid`;
  return usageError(`${what}. To skip invalid rows, use --skip-missing.`, ['mgw', 'help', 'batch']);
}

function viewOf(
  { plan, clips, missing }: JoinPlan,
  batch: Parameters<typeof planView>[0],
): Record<string, unknown> {
  const { batch: view, problems } = planView(batch, plan);
  return {
    batch: view,
    problems,
    clips: clips.map(({ id, path, speech }) => ({
      id,
      path,
      speech: speech.map((track) => ({ id: track.id, path: track.path })),
    })),
    missing: missing.map((row) => {
      const { line, id, state, message } = rowView(row);
      return { line, id, state, message };
    }),
  };
}
