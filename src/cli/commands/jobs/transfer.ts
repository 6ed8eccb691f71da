import type { Command } from 'commander';
import { usageError } from '../../../errors.ts';
import type { Job } from '../../../job.ts';
import { isObject, tryParseJson, type Json } from '../../../json.ts';
import { jobIdForm } from '../../../ledger/job-id.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import { findJob, missing } from '../../../jobs/ref.ts';
import type { Context } from '../../context.ts';
import { escapeControls, jobView } from '../../output/json.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { Run } from '../../action.ts';
import { readRefs } from '../../refs.ts';
import { readInputFile } from '../../input-file.ts';
import { decodeUtf8, readStdin } from '../../stdin.ts';

/** `mgw jobs export [REF...]`: jobs as JSON Lines on stdout, for another machine. */
export function registerExport(jobs: Command, run: Run): void {
  const command = jobs
    .command('export')
    .description('write jobs as JSON lines to stdout (all of them, or those named)')
    .argument('[refs...]', 'job ids, @key, @last; - reads them from stdin')
    .addHelpText('after', '\nExamples:\n  $ mgw jobs export @last > job.jsonl')
    .action((refs: string[]) => run(command, (context) => exportJobs(context, refs)));
}

async function exportJobs(context: Context, refs: string[]): Promise<Outcome> {
  const ledger = await context.ledger();
  const jobs: Job[] = [];
  for (const ref of refs.length > 0 ? await readRefs(refs, context.io) : await ledger.ids()) {
    jobs.push((await findJob(ledger, ref)) ?? missing(ref));
  }
  const views = jobs.map((job) => ({ ...jobView(job), account: job.record.account }));
  return {
    json: { jobs: views },
    text: views.map((view) => escapeControls(JSON.stringify(view))).join('\n'),
  };
}

/** `mgw jobs import FILE|-`: takes exported jobs in; those that are here already stay as they are. */
export function registerImport(jobs: Command, run: Run): void {
  const command = jobs
    .command('import')
    .description('take exported jobs in; those that are here already stay as they are')
    .argument('<file>', 'a file of JSON lines, or - for stdin')
    .addHelpText('after', '\nExamples:\n  $ mgw jobs import job.jsonl')
    .action((file: string) => run(command, (context) => importJobs(context, file)));
}

async function importJobs(context: Context, file: string): Promise<Outcome> {
  const text =
    file === '-' ? await readStdin(context.io) : decodeUtf8(await readInputFile(file, 'FILE'), file);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const entries = lines.map((line, index) => importable(tryParseJson(line), index + 1));
  const ledger = await context.ledger();
  const imported: string[] = [];
  for (const entry of entries) {
    if ((await ledger.read(entry.id)) !== undefined) continue;
    await take(ledger, entry);
    imported.push(entry.id);
  }
  return { json: { imported }, text: imported.join('\n') };
}

interface Importable {
  id: string;
  protocol: 'a' | 'b' | 'c';
  handle: string;
  base_url: string;
  account: string;
  model?: string;
  request?: Json;
}

// A job without a handle has nothing that could be carried on elsewhere.
function importable(value: Json | undefined, line: number): Importable {
  const bad = (what: string): never => {
    throw usageError(`Line ${line} is no exported job: ${what}.`);
  };
  if (!isObject(value)) return bad('it is not a JSON object');
  const { id, protocol, handle, base_url, account, model, request } = value;
  if (typeof id !== 'string' || !jobIdForm.test(id)) return bad('id is missing or malformed');
  if (protocol !== 'a' && protocol !== 'b' && protocol !== 'c') return bad('protocol must be a, b or c');
  if (typeof handle !== 'string' || handle === '')
    return bad('it has no handle, so there is nothing to carry on');
  if (typeof base_url !== 'string') return bad('base_url is missing');
  return {
    id,
    protocol,
    handle,
    base_url,
    account: typeof account === 'string' ? account : '',
    model: typeof model === 'string' ? model : undefined,
    request,
  };
}

async function take(ledger: Ledger, entry: Importable): Promise<void> {
  const { id, handle, ...prepared } = entry;
  await ledger.create(id, [
    { type: 'prepared', fingerprint: '', ...prepared },
    { type: 'accepted', handle },
  ]);
  await ledger.index('handle', handle, id);
}
