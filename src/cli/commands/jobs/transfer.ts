import { isAbsolute, join, relative, sep, win32 } from 'node:path';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { inputFileChunks, readRefs } from '../../input.ts';
import { stdinChunks } from '../../io.ts';
import type { Outcome } from '../../output/outcome.ts';
import { isBudgetName } from '../../../config/rules.ts';
import { usageError } from '../../../errors.ts';
import { realPathOf } from '../../../files/make-folder.ts';
import { sandboxName } from '../../../flows/settings.ts';
import { lostFingerprint, type Job, type JobEvent, type RecordedEvent } from '../../../job.ts';
import { noSuchJob } from '../../../jobs/errors.ts';
import { matchingJobs } from '../../../jobs/newest.ts';
import { namedJob, findJob } from '../../../jobs/ref.ts';
import { jobView } from '../../../jobs/view.ts';
import { isObject, type Json } from '../../../json.ts';
import { claimedNames, enrolAll } from '../../../ledger/chain.ts';
import type { exportedEvents } from '../../../ledger/event-schema.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import { jobIdPattern } from '../../../ledger/names.ts';
import { counted, escapeControls, printable, printableLine } from '../../../printable.ts';
import { JobSpool, readExport, type SpooledJob } from './exported-jobs.ts';
import { isObjectUrl, parseObjectUrl } from '../../../store-url.ts';

/** `mgw jobs export [REF...]`: prints jobs as JSON Lines, for another machine. */
export function registerExport(command: Command, run: Run): void {
  command
    .argument('[refs...]', 'job ids, @key, @last; - reads them from stdin')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs export @last > job.jsonl\n  $ mgw jobs export > all.jsonl\n  $ mgw jobs ls -q --state succeeded | mgw jobs export - > done.jsonl',
    )
    .action((refs: string[]) => run(command, (context) => exportJobs(context, refs)));
}

async function exportJobs(context: Context, refs: string[]): Promise<Outcome> {
  const ledger = await context.ledger();
  const jobs = refs.length === 0 ? await allJobs(ledger) : [];
  if (refs.length > 0)
    for (const ref of await readRefs(refs, context.io))
      jobs.push((await findJob(ledger, ref)) ?? noSuchJob(ref));
  const isDamaged = jobs.some(({ record }) => record.fingerprint === lostFingerprint);
  const names = isDamaged ? await claimedNames(ledger) : undefined;
  const lines: Record<string, unknown>[] = [];
  for (const job of jobs) {
    const { account, fingerprint } = job.record;
    const events = (await ledger.events(job.id)).map((event) => event ?? null);
    // Only claims contain the key and the fingerprint of a job whose record is damaged.
    const name = fingerprint === lostFingerprint ? names?.get(job.id) : undefined;
    lines.push({ ...jobView(job), ...name, account, events });
  }
  return {
    json: { jobs: lines },
    text: lines.map((line) => escapeControls(JSON.stringify(line))).join('\n'),
  };
}

// Returns all jobs, newest first. The index lists jobs whose records are lost, but may lack others.
async function allJobs(ledger: Ledger): Promise<Job[]> {
  const jobs = new Map<string, Job>();
  for await (const { job } of matchingJobs(ledger, {})) jobs.set(job.id, job);
  for (const id of await ledger.ids()) {
    const job = jobs.has(id) ? undefined : await ledger.read(id);
    if (job !== undefined) jobs.set(id, job);
  }
  return [...jobs.values()].sort((one, other) => (one.id < other.id ? 1 : -1));
}

/** `mgw jobs import FILE|-`: imports exported jobs. Existing jobs are unchanged. */
export function registerImport(command: Command, run: Run): void {
  command
    .argument('<file>', 'the output of jobs export, or - for stdin')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw jobs import job.jsonl\n  $ mgw jobs import job.jsonl --json\n  $ cat job.jsonl | mgw jobs import -',
    )
    .action((file: string) => run(command, (context) => importJobs(context, file)));
}

async function importJobs(context: Context, file: string): Promise<Outcome> {
  const { io } = context;
  // Loads the key, so that `redact` removes it from the records.
  await context.hideKey();
  const { sandbox } = await context.settings();
  const { exportedEvents: schema } = await import('../../../ledger/event-schema.ts');
  const isStdin = file === '-';
  const chunks = isStdin ? stdinChunks(io) : inputFileChunks(file, 'FILE');
  const exported = readExport(chunks, isStdin ? 'Standard input' : file, (text) => context.redact(text));
  const spool = await JobSpool.open();
  try {
    // Import a job once, even if the file contains it twice. Otherwise its chain of claims would refer to itself.
    const entries = new Map<string, Entry>();
    for await (const { value, place } of exported) {
      const { events, ...names } = importable(value, place, schema);
      checkSandbox(events, sandbox.value, place, file);
      if (!entries.has(names.id))
        entries.set(names.id, { ...names, place, spooled: await spool.add(value ?? null) });
    }
    const eventsOf = async ({ place, spooled }: Entry): Promise<Importable['events']> =>
      importable(await spool.get(spooled), place, schema).events;
    if (entries.size === 0)
      context.progress.note(`${isStdin ? 'Standard input' : printableLine(file)} contains no jobs.`);
    return await importAll(context, [...entries.values()], eventsOf);
  } finally {
    await spool.close();
  }
}

// Refuses a job of the sandbox in a ledger of paid jobs, and a paid job in the sandbox's ledger: no command could end
// it there.
function checkSandbox(
  [prepared]: Importable['events'],
  isSandbox: boolean,
  place: string,
  file: string,
): void {
  if (prepared?.type !== 'prepared' || (prepared.base_url === sandboxName) === isSandbox) return;
  throw isSandbox
    ? usageError(`${place} is not a job of the sandbox. Import it without --sandbox and MGW_SANDBOX.`)
    : usageError(`${place} is a job of the sandbox.`, ['mgw', '--sandbox', 'jobs', 'import', file]);
}

type EventsOf = (entry: Entry) => Promise<Importable['events']>;

// Imports jobs. All of them have been checked before.
async function importAll(context: Context, entries: readonly Entry[], eventsOf: EventsOf): Promise<Outcome> {
  const ledger = await context.ledger();
  const created = new Set<string>();
  const { owner } = await ledger.lease();
  await importReservations(context, ledger, entries, eventsOf);
  // Makes a job's claims even if the job existed, because an interrupted import may not have made them.
  await enrolAll(ledger, createAll(ledger, entries, eventsOf, created), owner);
  for (const { id, key } of entries) {
    const holder = await otherHolder(ledger, key, id);
    if (holder !== undefined) context.progress.note(`The key ${key ?? ''} still refers to ${holder} here.`);
  }
  const ids = entries.map(({ id }) => id);
  const imported = ids.filter((id) => created.has(id));
  const existing = ids.filter((id) => !created.has(id));
  if (existing.length > 0)
    context.progress.note(
      `Already recorded here, and therefore unchanged: ${counted(existing.length, 'job')}.`,
    );
  return { json: { imported, ...(existing.length > 0 && { existing }) }, text: imported.join('\n') };
}

// Adds the reservations of the jobs to the budgets that lack them. Budgets come before jobs, so that an interrupted
// import reserves too much rather than too little.
async function importReservations(
  context: Context,
  ledger: Ledger,
  entries: readonly Entry[],
  eventsOf: EventsOf,
): Promise<void> {
  const [{ addReservations }, { damagedJob }, { foldJob }] = await Promise.all([
    import('../../../flows/copy-state.ts'),
    import('../../../ledger/event-log.ts'),
    import('../../../ledger/fold.ts'),
  ]);
  const at = new Date(context.clock.now()).toISOString();
  const jobs = async function* (): Parameters<typeof addReservations>[1] {
    for (const entry of entries) {
      const { id } = entry;
      const isKnown = (await ledger.read(id)) !== undefined;
      const events = isKnown
        ? await ledger.events(id)
        : (await eventsOf(entry)).map((event) => event && { at, ...event });
      yield { job: foldJob(id, events) ?? damagedJob(id, '', events), events };
    }
  };
  const [name, ...more] = (await addReservations(context, jobs())).filter(isBudgetName);
  if (name === undefined) return;
  const others = more.length > 0 ? ` (and ${more.length} more)` : '';
  context.progress.note(
    `The budget ${name}${others} is not set here, so it does not count the imported jobs. After mgw budget set ${name} AMOUNT, import the jobs again.`,
  );
}

// Returns the id of the job that has the key, if that is a different job.
async function otherHolder(ledger: Ledger, key: string | undefined, id: string): Promise<string | undefined> {
  const holder = key === undefined ? undefined : await namedJob(ledger, key);
  return holder?.id === id ? undefined : holder?.id;
}

// Creates the jobs that the ledger lacks, oldest first, and yields every job. Imports a job that was removed here
// without its key if another job has the key now.
async function* createAll(
  ledger: Ledger,
  entries: readonly Entry[],
  eventsOf: EventsOf,
  created: Set<string>,
): AsyncGenerator<Job> {
  for (const entry of [...entries].sort((one, other) => (one.id < other.id ? -1 : 1))) {
    const { id, key, fingerprint } = entry;
    const events = await eventsOf(entry);
    const isTaken =
      key !== undefined &&
      (await ledger.claimState(id)) === 'removed' &&
      (await otherHolder(ledger, key, id)) !== undefined;
    const imported = events.map((each) =>
      isTaken && each?.type === 'prepared' ? { ...each, key: undefined } : each,
    );
    if (await ledger.create(id, imported, true)) created.add(id);
    const job = await ledger.read(id);
    if (job === undefined) continue;
    const isDamaged = fingerprint !== undefined && job.record.fingerprint === lostFingerprint;
    const ownKey = isTaken ? undefined : key;
    yield isDamaged ? { ...job, key: ownKey, record: { ...job.record, fingerprint } } : job;
  }
}

/** A checked job that is stored in the spool. */
interface Entry extends Pick<Importable, 'id' | 'key' | 'fingerprint'> {
  place: string;
  spooled: SpooledJob;
}

interface Importable {
  id: string;
  key?: string | undefined;
  /** Set if the job's record is damaged: the fingerprint that the job's claim contains. */
  fingerprint?: string | undefined;
  /** The job's events; `undefined` for each line that was unreadable on the other machine. */
  events: (JobEvent | RecordedEvent | undefined)[];
}

const sha256 = /^[0-9a-f]{64}$/;

function importable(value: Json | undefined, place: string, schema: typeof exportedEvents): Importable {
  const reject = (what: string): never => {
    throw usageError(`${place} is not an exported job: ${what}.`);
  };
  if (!isObject(value)) return reject('it is not a JSON object');
  const { id, key, fingerprint, events } = value;
  if (typeof id !== 'string' || !jobIdPattern.test(id)) return reject('id is missing or malformed');
  if (events === undefined) return reject('its events are missing. Export jobs with mgw jobs export');
  const checked = schema.safeParse(events);
  if (!checked.success)
    return reject(`event ${Number(checked.error.issues[0]?.path[0] ?? 0) + 1} is malformed`);
  const first = checked.data[0];
  if (first !== null && first?.type !== 'prepared') return reject('its first event is not "prepared"');
  return {
    id,
    key: typeof key === 'string' ? key : undefined,
    fingerprint: typeof fingerprint === 'string' && sha256.test(fingerprint) ? fingerprint : undefined,
    events: checked.data.map((event) =>
      event === null ? undefined : withSafePath(event as unknown as RecordedEvent, process.cwd()),
    ),
  };
}

/**
 * Returns an imported event with its path confined to `folder` (design 4). Keeps a path whose real location is below
 * the folder, and reduces any other path to its file name. Keeps a saved object's URL, because the object is only read,
 * and only if its size and SHA-256 match the record. Does not keep an output URL, because a rerun would write to it.
 */
export function withSafePath(event: RecordedEvent, folder: string): RecordedEvent {
  if (event.type === 'file')
    return isReadableObject(event.file.path)
      ? event
      : { ...event, file: { ...event.file, path: safePath(event.file.path, folder) } };
  if (event.type !== 'began' || event.output === undefined || event.output === '-') return event;
  return { ...event, output: safePath(event.output, folder) };
}

function isReadableObject(path: string): boolean {
  try {
    return isObjectUrl(path) && parseObjectUrl(path).key !== '';
  } catch {
    return false;
  }
}

function safePath(path: string, folder: string): string {
  const steps = relative(folder, path).split(sep);
  const isBelow =
    isAbsolute(path) && steps.every(isVisibleName) && realPathOf(path) === join(realPathOf(folder), ...steps);
  if (isBelow) return path;
  const name = win32.basename(path).replace(/^\.+/, '');
  return isVisibleName(name) ? name : 'imported';
}

function isVisibleName(name: string): boolean {
  return (
    name !== '' && !name.startsWith('.') && printable(name, name.length) === name && !/[\n\t/\\]/.test(name)
  );
}
