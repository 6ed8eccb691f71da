import { appendFileSync, mkdirSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { beforeEachStep } from '../../src/ledger/durable-file.ts';
import { countLine, totalAt } from '../../src/ledger/index-count.ts';
import { type IndexEntry, IndexLines, viewOf } from '../../src/ledger/index-lines.ts';
import { JobIndex } from '../../src/ledger/index-log.ts';
import { writeIndexed } from '../../src/ledger/job-records.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { freshFolder } from '../support/servers.ts';

afterEach(() => beforeEachStep(undefined));

interface Scene {
  log: string;
  count: string;
  /** Opens the index as another process would. */
  open: () => JobIndex;
  /** Creates a job with the given fingerprint. Returns its id. */
  create: (index: JobIndex, fingerprint: string) => Promise<string>;
  /** Calls `act` with the id of each job that a completion reads. */
  onRead: (act: (id: string) => void) => void;
  /** The number of jobs that completions have read. */
  reads: () => number;
}

/** An index whose jobs are in memory. */
function scene(): Scene {
  const state = freshFolder();
  const folder = join(state, 'jobs');
  mkdirSync(folder);
  const records = new Map<string, IndexEntry[]>();
  let [reads, time] = [0, 1_795_000_000_000];
  let onRead: (id: string) => void = () => undefined;
  const source = {
    folder,
    ids: () => [...records.keys()].sort(),
    entriesOf: (id: string) => {
      reads += 1;
      onRead(id);
      return records.get(id) ?? [];
    },
  };
  return {
    ...{ log: join(state, 'index.log'), count: join(state, 'index.count') },
    open: () => new JobIndex(state, source),
    create: async (index, fingerprint) => {
      const id = newJobId((time += 1000));
      const entries: IndexEntry[] = [
        { kind: 'fingerprint', id, value: fingerprint },
        { kind: 'succeeded', id, value: '' },
      ];
      await writeIndexed(
        () => index.add(entries),
        () => {
          records.set(id, entries);
          writeFileSync(join(folder, id), '');
          return Promise.resolve();
        },
      );
      return id;
    },
    onRead: (act) => (onRead = act),
    reads: () => reads,
  };
}

/** Calls `act` before the n-th time that bytes are appended to a file. */
function beforeAppend(file: string, n: number, act: () => unknown): void {
  let appends = 0;
  beforeEachStep(async (change, path) => {
    if (change === 'append' && path === file && (appends += 1) === n) await act();
  });
}

describe('a search finds every job even if lines are lost', () => {
  it('while the jobs are read', async () => {
    const { log, count, open, create, onRead } = scene();
    const ids = [await create(open(), 'f1'), await create(open(), 'f2'), await create(open(), 'f3')];
    appendFileSync(count, 'CUTD\n');
    onRead((id) => {
      if (id !== ids[2]) return;
      onRead(() => undefined);
      truncateSync(log, 32);
    });
    await open().find('fingerprint', 'f1');
    expect(await open().find('fingerprint', 'f2')).toEqual([ids[1]]);
  });

  it('after another process has created a job while the jobs were read', async () => {
    const { log, count, open, create, onRead } = scene();
    const first = await create(open(), 'f1');
    appendFileSync(count, 'CUTD\n');
    let created: Promise<string> | undefined;
    onRead((id) => {
      if (id !== first) return;
      onRead(() => undefined);
      const { size } = statSync(log);
      created = create(open(), 'f2');
      void created.then(() => truncateSync(log, size));
    });
    await open().find('fingerprint', 'f1');
    const id = await created;
    expect(await open().find('fingerprint', 'f2')).toEqual([id]);
  });

  it.each([
    ['before the first line is written', 3, 1],
    ['between two of the writes', 1001, 2],
  ])('while the search itself completes the index, %s', async (_, jobs, n) => {
    const { log, open, create } = scene();
    const writer = open();
    const ids = await Promise.all(Array.from({ length: jobs }, (_each, job) => create(writer, `f${job}`)));
    truncateSync(log, 0);
    const cut = vi.fn(() => truncateSync(log, 0));
    beforeAppend(log, n, cut);
    expect(await open().find('fingerprint', 'f0')).toEqual([ids[0]]);
    expect(cut).toHaveBeenCalledOnce();
  });

  it.each<[string, (file: string) => void]>([
    ['emptied', truncateSync],
    ['removed', rmSync],
  ])('from both of its files, which are %s and grow to their earlier lengths', async (_, lose) => {
    const { log, count, open, create } = scene();
    const [longRunning, other] = [open(), open()];
    await create(other, 'f1');
    for (const file of [log, count]) lose(file);
    await other.find('fingerprint', 'f1');
    await open().add([{ kind: 'fingerprint', id: newJobId(1), value: 'a job that was never created' }]);
    expect(await longRunning.find('fingerprint', 'f1')).toHaveLength(1);
    for (const file of [log, count]) lose(file);
    const id = await create(other, 'f2');
    expect(await longRunning.find('fingerprint', 'f2')).toEqual([id]);
  });
});

describe('two lines that a completion has removed from the count before both are written', () => {
  async function written(): Promise<Scene & { ids: string[] }> {
    const made = scene();
    const { log, open, create } = made;
    await create(open(), 'f0');
    let second: Promise<string> | undefined;
    let resume = (): void => undefined;
    const isCompleted = new Promise<void>((resolve) => (resume = resolve));
    beforeEachStep((change, path) => {
      if (change !== 'append' || path !== log) return;
      beforeAppend(log, 1, async () => {
        await open().find('fingerprint', 'f0');
        resume();
      });
      second = create(open(), 'f2');
      return isCompleted;
    });
    const first = await create(open(), 'f1');
    return { ...made, ids: [first, (await second) ?? ''] };
  }

  it('are found even if they are lost later', async () => {
    const { log, open, ids } = await written();
    truncateSync(log, statSync(log).size - 64);
    expect(await open().find('fingerprint', 'f1')).toEqual([ids[0]]);
  });

  it('do not make the next search read the jobs', async () => {
    const { open, reads } = await written();
    const before = reads();
    await open().find('fingerprint', 'f0');
    expect(reads()).toBe(before);
  });
});

it('one completion of many lines with a slow sync does not lead to others', async () => {
  const { log, open, create, reads } = scene();
  const writer = open();
  await Promise.all(Array.from({ length: 2500 }, (_, job) => create(writer, `f${job}`)));
  truncateSync(log, 0);
  let isFound: Promise<unknown> | undefined;
  beforeAppend(log, 2, () => {
    beforeEachStep(undefined);
    isFound = open().find('fingerprint', 'f0');
    return delay(30);
  });
  await open().find('fingerprint', 'f0');
  await isFound;
  const before = reads();
  await open().find('fingerprint', 'f0');
  expect(reads()).toBe(before);
});

it('a count that another process corrects while the jobs are read is not corrected twice', async () => {
  const { count, open, create, onRead, reads } = scene();
  await create(open(), 'f1');
  const [orphan, correction] = ['CUTD\n', countLine(-(totalAt(viewOf(Buffer.from('CUTD\n')), 0) ?? 0), true)];
  appendFileSync(count, orphan);
  onRead(() => {
    onRead(() => undefined);
    appendFileSync(count, correction);
  });
  await open().find('fingerprint', 'f1');
  expect(reads()).toBe(1);
});

it('a completion searches once for all jobs that have succeeded', async () => {
  const { count, open, create } = scene();
  const writer = open();
  await Promise.all(Array.from({ length: 100 }, (_, job) => create(writer, `f${job}`)));
  appendFileSync(count.replace('index', 'handles'), 'CUTD\n');
  const find = vi.spyOn(IndexLines.prototype, 'find');
  await open().isAccepted('');
  const searches = find.mock.calls.filter(([kind]) => kind === 'succeeded');
  find.mockRestore();
  expect(searches).toHaveLength(1);
});
