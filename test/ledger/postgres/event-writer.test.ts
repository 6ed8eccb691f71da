import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { MgwError } from '../../../src/errors.ts';
import { lostFingerprint, type JobEvent, type Owner } from '../../../src/job.ts';
import { decodeEvents, encodeEvent } from '../../../src/ledger/event-log.ts';
import { newJobId } from '../../../src/ledger/names.ts';
import { Database, DatabaseLost } from '../../../src/ledger/postgres/database.ts';
import { EventWriter } from '../../../src/ledger/postgres/event-writer.ts';
import { UnwrittenEvents } from '../../../src/ledger/kept-facts.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { freshFolder } from '../../support/servers.ts';
import { accepted, now, prepared } from '../conformance.ts';

const owner: Owner = { pid: 7, start: '1', host: 'h', instance: 'i', lease: '3' };
const connectionLost = new DatabaseLost('unreachable', 'gone', { retry: 'safe' });
const error = { code: 'unreachable', message: 'no' } as const;
const sending: JobEvent = { type: 'sending', attempt: 2, owner };
const delivered: JobEvent = { type: 'delivered', run: 'r1' };
const running: JobEvent = { type: 'observed', state: 'running', native_status: 'run' };

/** The columns of a statement that adds events. */
interface Insert {
  jobs: string[];
  lines: string[];
  seen: number[];
  states: string[];
  leases: (string | null)[];
  hashes: (string | null)[];
  commit: string | undefined;
}

/**
 * A fake database in which every job exists. Each test sets which statements the database refuses, and what other
 * processes have changed.
 */
class Jobs {
  /** The errors with which the database refuses the next statements that add events. */
  refusals: Error[] = [];
  /** The ids of jobs to which no event is added, as if the job had been removed or the lease lost. */
  unchanged = new Set<string>();
  /** The result of a statement that creates a job. */
  found: { created: boolean; held: boolean; there: boolean } = { created: true, held: true, there: false };
  /** Whether the table of events contains the requested event. */
  hasEvent = false;
  hasJob = true;
  firstLine = '';
  readonly inserts: Insert[] = [];
  readonly restored: unknown[] = [];
  /** The hashes by which each created job can be looked up. */
  readonly names: unknown[] = [];
  /** The columns of each statement that creates jobs. */
  readonly created: { states: unknown; leases: unknown; instances: unknown; numbers: unknown }[] = [];
  readonly queueUpdates: (readonly unknown[])[] = [];
  readonly counts = new Map<string, number>();

  answer(text: string, values: readonly unknown[], commit?: string): object[] {
    if (text.includes('INSERT INTO mgw.jobs')) {
      this.restored.push(values[5]);
      this.names.push(values[11]);
      const [, , states, leases, instances, , , numbers] = values;
      this.created.push({ states, leases, instances, numbers });
      return (values[0] as string[]).map((id) => ({ id, ...this.found }));
    }
    if (text.includes('INSERT INTO mgw.events')) return this.#insert(values as string[][], commit);
    if (text.startsWith('SELECT FROM mgw.events')) return this.hasEvent ? [{}] : [];
    if (text.startsWith('SELECT FROM mgw.jobs')) return this.hasJob ? [{}] : [];
    if (text.startsWith('SELECT line')) return [{ line: this.firstLine }];
    if (!text.startsWith('UPDATE mgw.batch_rows')) throw new Error(text);
    this.queueUpdates.push(values);
    return [];
  }

  #insert(values: string[][], commit?: string): object[] {
    const refusal = this.refusals.shift();
    if (refusal !== undefined) throw refusal;
    const [jobs = [], uids = [], lines = [], seen = [], states = [], leases = [], , hashes = []] = values;
    this.inserts.push({ jobs, lines, seen: seen.map(Number), states, leases, hashes, commit });
    return jobs.flatMap((job, at) => {
      if (this.unchanged.has(job)) return [];
      const n = (this.counts.get(job) ?? 0) + 1;
      this.counts.set(job, n);
      return [{ uid: uids[at], n }];
    });
  }
}

function open(): { jobs: Jobs; writer: EventWriter; facts: UnwrittenEvents; id: string } {
  const [jobs, database] = [new Jobs(), new Database(parseStateUrl('postgres://127.0.0.1/d'))];
  vi.spyOn(database, 'query').mockImplementation((text, values = [], commit) =>
    Promise.resolve().then(() => jobs.answer(text, values, commit) as never[]),
  );
  const facts = new UnwrittenEvents(freshFolder(), 'one');
  return { jobs, facts, writer: new EventWriter(database, facts, () => now), id: newJobId(now) };
}

/** Returns the pending events in the local files. */
async function keptIn(facts: UnwrittenEvents): Promise<(JobEvent | undefined)[]> {
  const kept: (JobEvent | undefined)[] = [];
  await facts
    .flush(({ line }) => {
      kept.push(...decodeEvents(`${line}\n`));
      return Promise.reject(new Error('stays'));
    })
    .catch(() => undefined);
  return kept;
}

describe('while the database is unavailable,', () => {
  const facts: JobEvent[] = [
    { type: 'reply', attempt: 1, reply: { status: 200, headers: {}, text: '', complete: true } },
    accepted,
    { type: 'rejected', error },
    { type: 'unavailable', attempt: 1, error },
    { type: 'unknown', error },
    { type: 'finished', state: 'succeeded', native_status: 'ok' },
    { type: 'file', file: { path: '/a.mp4', bytes: 1, sha256: '', mime: 'video/mp4' } },
    delivered,
    { type: 'detached', run: 'r1', exit_code: 8 },
  ];
  it.each(facts.map((event) => ({ event })))(
    'the event $event.type is kept in a file, and written before the next event',
    async ({ event }) => {
      const { jobs, writer, facts, id } = open();
      jobs.refusals.push(connectionLost);
      await expect(writer.append(id, event)).rejects.toThrow('The event was saved');
      expect(await keptIn(facts)).toMatchObject([event]);
      await writer.append(id, running);
      expect(jobs.inserts.flatMap(({ lines }) => decodeEvents(`${lines.join('\n')}\n`))).toMatchObject([
        event,
        running,
      ]);
      expect(facts.files()).toEqual([]);
    },
  );

  it("a user's decision, an observation and the announcement of an action are refused, and not kept in a file", async () => {
    const { jobs, writer, facts, id } = open();
    const began: JobEvent = { type: 'began', run: 'r1', owner, command: 'submit', ask: 'accept' };
    const rated: JobEvent = { type: 'rated', rating: 3 };
    for (const event of [running, rated, { type: 'resolved', how: 'resubmit' } as const, sending, began]) {
      jobs.refusals.push(connectionLost);
      await expect(writer.append(id, event)).rejects.toBe(connectionLost);
    }
    expect(facts.files()).toEqual([]);
  });

  it('an event that cannot be saved to a local file is written before the next event', async () => {
    const { jobs, writer, facts, id } = open();
    mkdirSync(dirname(dirname(facts.folder)), { recursive: true });
    writeFileSync(dirname(facts.folder), '');
    jobs.refusals.push(connectionLost);
    await expect(writer.append(id, accepted)).rejects.toMatchObject({
      code: connectionLost.code,
      message: expect.stringMatching(/could not be saved in .* either: ENOTDIR/) as string,
    });
    await writer.append(id, running);
    const lines = jobs.inserts.flatMap((insert) => insert.lines);
    expect(decodeEvents(`${lines.join('\n')}\n`)).toMatchObject([accepted, running]);
  });

  it('an event that is refused for another reason is kept only if it records something that has happened', async () => {
    const { jobs, writer, facts, id } = open();
    const full = new MgwError('local_io', 'full');
    jobs.refusals.push(full);
    await expect(writer.append(id, sending)).rejects.toBe(full);
    expect(facts.files()).toEqual([]);
    jobs.refusals.push(full);
    await expect(writer.append(id, accepted)).rejects.toMatchObject({ code: 'local_io' });
    expect(facts.files()).toHaveLength(1);
  });

  it('a process checks for pending events before a write only if it has a pending event', async () => {
    const { jobs, writer, facts, id } = open();
    const flushed = vi.spyOn(facts, 'flush');
    await writer.append(id, running);
    expect(flushed).not.toHaveBeenCalled();
    jobs.refusals.push(connectionLost);
    await writer.append(id, accepted).catch(() => undefined);
    for (let events = 0; events < 2; events += 1) await writer.append(id, running);
    expect(flushed).toHaveBeenCalledTimes(1);
    await writer.flush(true);
    expect(flushed).toHaveBeenCalledTimes(2);
  });

  it('an event that is kept while other events are written is written before the next event', async () => {
    const { jobs, writer, facts, id } = open();
    jobs.refusals.push(connectionLost);
    await writer.append(id, accepted).catch(() => undefined);
    const flush = facts.flush.bind(facts);
    vi.spyOn(facts, 'flush').mockImplementationOnce(async (write) => {
      await flush(write);
      jobs.refusals.push(connectionLost);
      await writer.append(id, delivered).catch(() => undefined);
    });
    await writer.flush();
    expect(await keptIn(facts)).toMatchObject([delivered]);
    await writer.append(id, running);
    expect(facts.files()).toEqual([]);
  });
});

describe('a job', () => {
  const began: JobEvent = { type: 'began', run: 'r1', owner, command: 'submit', ask: 'accept' };

  it('is cached by the process that creates it, and is not created again if it exists', async () => {
    const { jobs, writer, id } = open();
    expect(await writer.create(id, [prepared, began])).toBe(true);
    expect(writer.justWritten(id)).toHaveLength(2);
    jobs.counts.set(id, 2);
    await writer.append(id, accepted);
    expect(jobs.inserts.at(-1)).toMatchObject({ seen: [2], states: ['queued'] });
    jobs.found = { created: false, held: true, there: true };
    expect(await writer.create(newJobId(now + 1), [prepared, began])).toBe(false);
    expect(await writer.create(id, [prepared], true)).toBe(false);
    expect(jobs.restored).toEqual([false, false, true]);
  });

  it("is created with its state, under its process's lease if it has one, and its events are numbered from 1", async () => {
    const { jobs, writer, id } = open();
    await writer.create(id, [prepared, began]);
    await writer.create(newJobId(now + 1), [prepared, accepted]);
    expect(jobs.created).toEqual([
      { states: ['prepared'], leases: ['3'], instances: ['i'], numbers: [1, 2] },
      { states: ['queued'], leases: [null], instances: [null], numbers: [1, 2] },
    ]);
  });

  it('is created once if two calls create it at the same time', async () => {
    const { writer, id } = open();
    const created = await Promise.all([writer.create(id, [prepared]), writer.create(id, [prepared])]);
    expect(created).toEqual([true, false]);
  });

  it('is found by its fingerprint and its handle, if it has them', async () => {
    const { jobs, writer } = open();
    const lost = { ...prepared, fingerprint: lostFingerprint };
    for (const [at, events] of [[prepared], [prepared, accepted], [lost, accepted], [undefined]].entries())
      await writer.create(newJobId(now + at), events);
    expect(jobs.names).toMatchObject([{ length: 1 }, { length: 2 }, { length: 1 }, { length: 0 }]);
  });

  it('is reported as created if an earlier attempt created it, and is not cached, because other processes may have added events', async () => {
    const { jobs, writer, id } = open();
    jobs.found = { created: false, held: false, there: true };
    jobs.hasEvent = true;
    expect(await writer.create(id, [prepared, began])).toBe(true);
    expect(writer.justWritten(id)).toBeUndefined();
  });

  it('is not created by a process that has lost its lease, unless it is imported', async () => {
    const { jobs, writer, id } = open();
    jobs.found = { created: false, held: false, there: false };
    await expect(writer.create(id, [prepared, began])).rejects.toThrow('longer than its lease');
    const at = new Date(now).toISOString();
    expect(await writer.create(id, [{ ...prepared, at }, { ...began, at }, undefined])).toBe(false);
    for (const found of [
      { created: false, held: true, there: false },
      { created: false, held: false, there: true },
    ]) {
      jobs.found = found;
      expect(await writer.create(id, [prepared, began])).toBe(false);
    }
  });
});

describe('an event', () => {
  it('causes one error if its job is missing, and a different error if the lease is lost', async () => {
    const { jobs, writer, id } = open();
    jobs.unchanged.add(id);
    await expect(writer.append(id, sending)).rejects.toThrow('longer than its lease');
    jobs.hasJob = false;
    await expect(writer.append(id, sending)).rejects.toMatchObject({ code: 'local_io' });
  });

  it('is reported as written if an earlier attempt wrote it, even if the database then reports a duplicate', async () => {
    const { jobs, writer, id } = open();
    jobs.hasEvent = true;
    jobs.unchanged.add(id);
    await writer.append(id, accepted);
    const duplicate = Object.assign(new Error('twice'), { code: '23505' });
    jobs.refusals.push(new MgwError('local_io', 'twice', { cause: duplicate }));
    await writer.append(id, accepted);
    jobs.refusals.push(new MgwError('local_io', 'full'));
    await expect(writer.append(id, running)).rejects.toThrow('full');
  });

  it('shares a statement with events of other jobs, but not with events of its own job', async () => {
    const { jobs, writer, id } = open();
    const [other, third] = [newJobId(now + 1), newJobId(now + 2)];
    await Promise.all([
      writer.append(id, accepted),
      writer.append(id, running),
      writer.append(third, running),
      writer.append(id, { type: 'finished', state: 'succeeded', native_status: 'ok' }),
      writer.append(other, running),
    ]);
    // Jobs are sorted by id, so two processes never wait for each other.
    expect(jobs.inserts.map((insert) => insert.jobs)).toEqual([[id, other, third], [id], [id]]);
    const ofJob = jobs.inserts.flatMap(({ jobs: ids, lines }) => lines.filter((_, at) => ids[at] === id));
    expect(decodeEvents(`${ofJob.join('\n')}\n`).map((event) => event?.type)).toEqual([
      'accepted',
      'observed',
      'finished',
    ]);
  });

  it('is written separately if the statement that it shares with other jobs is refused', async () => {
    const { jobs, writer, id } = open();
    const duplicate = Object.assign(new Error('twice'), { code: '23505' });
    jobs.refusals.push(new MgwError('local_io', 'twice', { cause: duplicate }));
    const ids = [id, newJobId(now + 1)];
    await Promise.all(ids.map((each) => writer.append(each, running)));
    expect(jobs.inserts.map((insert) => insert.jobs)).toEqual(ids.map((each) => [each]));
  });

  it("is written under its process's lease if it announces an action of the process", async () => {
    const { jobs, writer, id } = open();
    const began: JobEvent = { type: 'began', run: 'r1', owner, command: 'submit', ask: 'accept' };
    for (const event of [began, sending, accepted, running]) await writer.append(id, event);
    expect(jobs.inserts.map(({ leases }) => leases)).toEqual([['3'], ['3'], [null], [null]]);
  });

  it('need not be synced if it only records a delivery', async () => {
    const { jobs, writer, id } = open();
    await writer.append(id, delivered);
    await writer.append(id, accepted);
    await Promise.all([writer.append(id, delivered), writer.append(newJobId(now + 1), accepted)]);
    expect(jobs.inserts.map(({ commit }) => commit)).toEqual(['soon', 'durable', 'durable']);
  });

  it('lets its job be found by the handle if it is an acceptance', async () => {
    const { jobs, writer, id } = open();
    await writer.append(id, running);
    await writer.append(id, accepted);
    expect(jobs.inserts.map(({ hashes }) => hashes)).toEqual([[null], [expect.any(String)]]);
  });
});

describe("a job's state", () => {
  const linesOf = (...events: JobEvent[]): string[] =>
    events.map((event) => encodeEvent(event, now).trimEnd());

  it('is written with an event if the process knows all earlier events', async () => {
    const { jobs, writer, id } = open();
    writer.cacheLines(id, linesOf(prepared));
    jobs.counts.set(id, 1);
    await writer.append(id, accepted);
    expect(jobs.inserts.at(-1)).toMatchObject({ seen: [1], states: ['queued'] });
    // Another process has added an event.
    jobs.counts.set(id, 3);
    await writer.append(id, running);
    expect(jobs.inserts.at(-1)).toMatchObject({ seen: [2], states: ['running'] });
    expect(writer.justWritten(id)).toBeUndefined();
    await writer.append(id, running);
    expect(jobs.inserts.at(-1)).toMatchObject({ seen: [-1], states: ['unknown'] });
  });

  it('needs no query in the event loop turn in which it was written', async () => {
    const { jobs, writer, id } = open();
    writer.cacheLines(id, linesOf(prepared));
    expect(writer.justWritten(id)).toBeUndefined();
    jobs.counts.set(id, 1);
    await writer.append(id, accepted);
    expect(writer.justWritten(id)).toHaveLength(2);
    await new Promise((resolve) => setImmediate(resolve));
    expect(writer.justWritten(id)).toBeUndefined();
    await writer.append(id, running);
    writer.dropCached(id);
    expect(writer.justWritten(id)).toBeUndefined();
  });

  it('is read again if the database did not write an event as expected', async () => {
    const { jobs, writer, id } = open();
    writer.cacheLines(id, linesOf(prepared));
    jobs.unchanged.add(id);
    jobs.hasEvent = true;
    await writer.append(id, accepted);
    jobs.unchanged.clear();
    jobs.counts.set(id, 2);
    await writer.append(id, running);
    expect(jobs.inserts.at(-1)).toMatchObject({ seen: [-1], states: ['unknown'] });
  });

  it('is cached for the 512 most recently used jobs', async () => {
    const { jobs, writer } = open();
    const ids = Array.from({ length: 513 }, (_, at) => newJobId(now + at));
    const [first = '', second = '', third = ''] = ids;
    for (const id of ids.slice(0, 512)) writer.cacheLines(id, linesOf(prepared));
    writer.cacheLines(first, linesOf(prepared));
    writer.cacheLines(ids[512] ?? '', linesOf(prepared));
    for (const id of [first, second, third]) {
      jobs.counts.set(id, 1);
      await writer.append(id, accepted);
    }
    expect(jobs.inserts.map(({ seen }) => seen[0])).toEqual([1, -1, 1]);
  });
});

describe('an event that resolves a doubt', () => {
  it.each<[string, string | undefined, unknown[][]]>([
    ['makes a batch row available again', 'films/s1', [['films', ['s1', 's1']]]],
    ["makes a numbered job's row available again", 'films/a/b/2', [['films', ['a/b/2', 'a/b']]]],
    ['changes no batch if the job has a key outside batches', 'films', []],
    ['changes no batch if the job has no key', undefined, []],
  ])('%s', async (_, key, updates) => {
    const { jobs, writer, id } = open();
    jobs.firstLine = encodeEvent({ ...prepared, ...(key && { key }) }, now).trimEnd();
    await writer.append(id, { type: 'resolved', how: 'not-created' });
    expect(jobs.queueUpdates).toEqual(updates);
    await writer.append(id, running);
    expect(jobs.queueUpdates).toEqual(updates);
  });

  it('may be pending, but is dropped if its job is removed', async () => {
    const { jobs, writer, facts, id } = open();
    jobs.firstLine = encodeEvent({ ...prepared, key: 'films/s1' }, now).trimEnd();
    const keep = async (): Promise<void> => {
      jobs.refusals.push(connectionLost);
      await writer.append(id, accepted).catch(() => undefined);
    };
    await keep();
    await writer.flush();
    expect(jobs.queueUpdates).toHaveLength(1);
    await keep();
    jobs.unchanged.add(id);
    jobs.hasJob = false;
    await writer.flush();
    expect([facts.files(), jobs.queueUpdates.length]).toEqual([[], 1]);
  });
});
