import { counted } from '../../printable.ts';
import type { Command } from 'commander';
import { formatDuration, parseDuration } from '../../clock.ts';
import { usageError } from '../../errors.ts';
import { queuedUploads } from '../../batch/fleet/queued-row.ts';
import { fleetStateOf } from '../../batch/fleet/fleet-state.ts';
import {
  removableInputs,
  removeInputs,
  uploadedInputs,
  type PrunedInputs,
} from '../../flows/uploaded-inputs.ts';
import type { Run } from '../command-tree.ts';
import type { Context } from '../context.ts';
import { columnsOf } from '../io.ts';
import { single } from '../options.ts';
import { ago } from '../output/human.ts';
import type { Outcome } from '../output/outcome.ts';
import { table } from '../output/table.ts';
import { size } from '../output/progress.ts';
import { readLine } from '../input.ts';

interface PruneOptions {
  olderThan?: number;
  dryRun?: boolean;
  yes?: boolean;
}

const defaultAge = '30d';

const explanation = `
Files that an open job or a queued row needs are kept. Other ledgers are not checked: if they use the same
bucket, they must not need files older than --older-than. A removed file is uploaded again if needed.

Examples:
  $ mgw store prune --dry-run
  $ mgw store prune --older-than 7d --yes`;

/** `mgw store ls|prune`: lists and removes the input files that mgw uploaded to the store (design 17). */
export function registerStore(group: Command, run: Run): void {
  const ls = group
    .command('ls')
    .description('list the uploaded files with their size, age and jobs')
    .addHelpText('after', '\nExamples:\n  $ mgw store ls\n  $ mgw store ls --json')
    .action(() => run(ls, listFiles));
  const prune = group
    .command('prune')
    .description('remove uploaded files that no open job needs, and print their URLs')
    .addOption(
      single(
        '--older-than <age>',
        `remove only files older than this (default ${defaultAge})`,
        parseDuration,
      ),
    )
    .option('--dry-run', 'print what would be removed, and remove nothing')
    .option('--yes', 'remove without confirmation')
    .addHelpText('after', explanation)
    .action(() => run(prune, (context) => pruneFiles(context, prune.opts())));
}

async function listFiles(context: Context): Promise<Outcome> {
  const files = await uploadedInputs(context);
  if (files.length === 0) context.progress.note('No uploaded files.');
  const json = { files };
  if (context.globals.quiet) return { json, text: files.map(({ url }) => url).join('\n') };
  const now = context.clock.now();
  const rows = files.map(({ url, bytes, uploaded_at, jobs }) => [
    url,
    size(bytes),
    ago(uploaded_at, now),
    jobs.length > 1 ? `${jobs.at(-1)} and ${jobs.length - 1} more` : (jobs[0] ?? '-'),
  ]);
  const head = ['file', 'size', 'uploaded', 'job'];
  return { json, text: rows.length === 0 ? '' : table(head, rows, columnsOf(context.io.stdout)) };
}

async function pruneFiles(
  context: Context,
  { olderThan = parseDuration(defaultAge), dryRun = false, yes = false }: PruneOptions,
): Promise<Outcome> {
  const ledger = await context.ledger();
  const fleet = fleetStateOf(ledger);
  const options = {
    before: context.clock.now() - olderThan,
    queued: () => (fleet === undefined ? Promise.resolve([]) : queuedUploads(fleet.query)),
  };
  const isDry =
    dryRun || (!yes && !(await isConfirmed(context, olderThan, await removableInputs(context, options))));
  const pruned = isDry ? await removableInputs(context, options) : await removeInputs(context, options);
  const { removed, kept } = pruned;
  context.progress.note(
    `${isDry ? `${countText(removed)} would be removed` : `${countText(removed)} removed`}${keptText(kept)}.`,
  );
  return {
    json: { removed, kept, ...(isDry && { dry_run: true }) },
    text: removed.map(({ url }) => url).join('\n'),
  };
}

async function isConfirmed(context: Context, olderThan: number, { removed }: PrunedInputs): Promise<boolean> {
  if (removed.length === 0) return true;
  const { noInput } = await context.settings();
  if (context.io.stdin.isTTY !== true || noInput.value)
    throw usageError(
      `${countText(removed)} can be removed. To list them, use --dry-run; to remove them, use --yes.`,
      ['mgw', 'store', 'prune', '--older-than', formatDuration(olderThan), '--yes'],
    );
  return /^y(es)?$/i.test((await readLine(context.io, `Remove ${countText(removed)}? [y/N] `)).trim());
}

function countText(files: PrunedInputs['removed']): string {
  const bytes = size(files.reduce((sum, file) => sum + file.bytes, 0));
  return `${counted(files.length, 'file')} (${bytes})`;
}

function keptText({ newer, job, queue }: PrunedInputs['kept']): string {
  const reasons = [
    ...(newer > 0 ? [`${newer} newer`] : []),
    ...(job > 0 ? [`${job} needed by open jobs`] : []),
    ...(queue > 0 ? [`${queue} needed by queued rows`] : []),
  ];
  return reasons.length === 0 ? '' : `; kept: ${reasons.join(', ')}`;
}
