import { execFile, spawnSync } from 'node:child_process';
import fs, {
  appendFileSync,
  constants,
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  truncateSync,
  utimesSync,
  type PathLike,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { describe, expect, it, vi } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import { decodeEvents, encodeEvent } from '../../src/ledger/event-log.ts';
import { beforeEachStep } from '../../src/ledger/durable-file.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { countLine } from '../../src/ledger/index-count.ts';
import { indexLine, totalOf } from '../../src/ledger/index-lines.ts';
import { JobIndex } from '../../src/ledger/index-log.ts';
import { writeIndexed } from '../../src/ledger/job-records.ts';
import { holderText, names, newJobId, readHolder } from '../../src/ledger/names.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk, type DiskOperation } from '../support/disk-operations.ts';
import { freshFolder } from '../support/servers.ts';
import { deadOwner } from '../jobs/harness.ts';

const { O_RDWR } = constants;
const now = 1_795_000_000_000;
const prepared: JobEvent = {
  type: 'prepared',
  protocol: 'a',
  base_url: 'https://gateway.example',
  fingerprint: 'f1',
  account: 'a1',
};
const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };

const sending = (): JobEvent => ({ type: 'sending', attempt: 1, owner: deadOwner() });

interface Made {
  ledger: Ledger;
  state: string;
  id: string;
  path: string;
}

async function made(...events: JobEvent[]): Promise<Made> {
  const state = join(freshFolder(), 'deep', 'state');
  const ledger = await openFileLedger(state, () => now);
  const id = newJobId(now);
  await ledger.create(id, [prepared, ...events]);
  return { ledger, state, id, path: join(state, 'jobs', `${id}.jsonl`) };
}

/** Calls `act` before each file is opened. */
function onOpen(act: (file: PathLike, flags: unknown) => void): void {
  const { openSync } = fs;
  const opened = vi.spyOn(fs, 'openSync').mockImplementation((file, ...rest) => {
    act(file, rest[0]);
    return openSync(file, ...rest);
  });
  syncBuiltinESMExports();
  onEnd(() => {
    opened.mockRestore();
    syncBuiltinESMExports();
  });
}

/** Calls `act` before each disk operation. If `act` throws an error, the operation fails with the error. */
async function onDisk(act: (operation: DiskOperation) => void): Promise<void> {
  onEnd(() => watchDisk(undefined));
  await watchDisk((operation, run) => {
    act(operation);
    return run();
  });
}

function filesUnder(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

describe('a job', () => {
  it('is read again only if another process has changed it', async () => {
    const { ledger, state, id, path } = await made();
    const other = await openFileLedger(state, () => now);
    const read = async (): Promise<unknown> => {
      const { handle, native_status, rating, record } = (await ledger.read(id)) ?? {};
      return [handle, native_status, rating, record?.damaged];
    };
    expect(await read()).toEqual([undefined, undefined, undefined, 0]);
    await other.append(id, accepted);
    expect(await read()).toEqual(['task_1', undefined, undefined, 0]);
    // Each process now appends after an unread line of the other process.
    await other.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    await ledger.append(id, { type: 'rated', rating: 3 });
    const text = readFileSync(path, 'utf8');
    const modes: unknown[] = [];
    onOpen((_, flags) => modes.push(Number(flags) & O_RDWR));
    for (let reads = 0; reads < 3; reads += 1) expect(await read()).toEqual(['task_1', 'run', 3, 0]);
    await ledger.append(id, { type: 'rated', rating: 4 });
    expect(await read()).toEqual(['task_1', 'run', 4, 0]);
    expect(modes).toEqual([0, O_RDWR]);
    const version = await ledger.version(id);
    writeFileSync(path, text.replace('"rating":3', '"rating":5'));
    expect(await ledger.version(id)).not.toBe(version);
    expect(await read()).toEqual(['task_1', 'run', undefined, 1]);
    writeFileSync(`${path}.copy`, text);
    renameSync(`${path}.copy`, path);
    expect(await read()).toEqual(['task_1', 'run', 3, 0]);
    rmSync(path);
    expect(await ledger.read(id)).toBeUndefined();
  });

  it.each<[string, (path: string) => void, string | undefined]>([
    ['changes', (path) => appendFileSync(path, encodeEvent(accepted, now)), 'task_1'],
    ['deletes', (path) => rmSync(path), undefined],
  ])('is read again if another process %s its record before its creation ends', async (_, change, handle) => {
    const { ledger, state } = await made();
    const id = newJobId(now + 1);
    const path = join(state, 'jobs', `${id}.jsonl`);
    await onDisk(({ name, path: changed = '' }) => {
      if (name === 'unlink' && changed.startsWith(`${path}.`)) change(path);
    });
    expect(await ledger.create(id, [prepared])).toBe(true);
    expect((await ledger.read(id))?.handle).toBe(handle);
  });

  it('has a durable index line before it has a record', async () => {
    const { ledger, state } = await made();
    const id = newJobId(now + 1);
    const seen: string[] = [];
    await onDisk(({ name, path = '' }) => {
      if (name === 'link' || path.endsWith('.log')) seen.push(`${name} ${relative(state, path)}`);
    });
    await ledger.create(id, [prepared]);
    expect(seen.slice(-2)).toEqual(['sync index.log', `link ${join('jobs', `${id}.jsonl`)}`]);
  });

  it('is read again if another process adds an event at the same moment', async () => {
    const { ledger, id, path } = await made();
    let isOver = false;
    await onDisk(({ name, path: changed }) => {
      if (name === 'write' && changed === path && !isOver) {
        isOver = true;
        appendFileSync(path, encodeEvent(accepted, now));
      }
    });
    await ledger.append(id, { type: 'rated', rating: 3 });
    expect(await ledger.read(id)).toMatchObject({ handle: 'task_1', rating: 3 });
  });

  it.each<[string, boolean, (other: Ledger, id: string) => Promise<unknown>, string | undefined]>([
    ['forbids', false, (other, id) => other.forbid(id), undefined],
    ['creates', false, (other, id) => other.create(id, [prepared, accepted]), 'task_1'],
    ['restores', true, (other, id) => other.create(id, [prepared, accepted], true), 'task_1'],
  ])('is not created if another process %s it immediately before', async (_, restores, act, handle) => {
    const { ledger, state } = await made();
    const other = await openFileLedger(state, () => now);
    const id = newJobId(now + 1);
    if (restores) await ledger.remove(id);
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep(async (change, path) => {
      if (change !== 'link' || !path.endsWith(`${id}.jsonl`)) return;
      beforeEachStep(undefined);
      await act(other, id);
    });
    expect(await ledger.create(id, [prepared], restores)).toBe(false);
    expect((await ledger.read(id))?.handle).toBe(handle);
  });

  it.each<[JobEvent, string[]]>([
    [sending(), ['record']],
    [accepted, ['handles.log', 'record']],
    [{ type: 'rated', rating: 1 }, ['record']],
    [{ type: 'delivered', run: 'r1' }, []],
  ])(
    'has its record and its index line synced only as far as the event requires: $type',
    async (event, synced) => {
      const { ledger, state, id, path } = await made();
      await ledger.lookup('handle', 'task_1');
      const seen: string[] = [];
      await onDisk(({ name, path: changed = '' }) => {
        if (name === 'sync') seen.push(changed === path ? 'record' : relative(state, changed));
      });
      await ledger.append(id, event);
      expect(seen).toEqual(synced);
    },
  );

  it('is read from memory until 256 other jobs are read', async () => {
    const { ledger, state, id, path } = await made();
    const others = Array.from({ length: 256 }, (_, n) => newJobId(now + 1 + n));
    for (const other of others) copyFileSync(path, join(state, 'jobs', `${other}.jsonl`));
    const opened: PathLike[] = [];
    onOpen((file) => opened.push(file));
    for (const each of others.slice(0, 255)) await ledger.read(each);
    await ledger.read(id);
    expect(opened).not.toContain(path);
    for (const each of others) await ledger.read(each);
    await ledger.read(id);
    expect(opened.filter((file) => file === path)).toHaveLength(1);
    expect(opened).toHaveLength(others.length + 1);
  });

  it('is readable only by its owner: files have mode 0600, folders 0700', async () => {
    const { ledger, state, id } = await made();
    await ledger.append(id, accepted);
    await ledger.claim('key.boat', `${id} f1`);
    const files = filesUnder(state);
    expect(files).toHaveLength(8);
    for (const file of files) expect(statSync(file).mode & 0o777, file).toBe(0o600);
    const folders = readdirSync(state, { recursive: true, withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    for (const folder of [
      state,
      join(state, '..'),
      ...folders.map((entry) => join(entry.parentPath, entry.name)),
    ])
      expect(statSync(folder).mode & 0o777, folder).toBe(0o700);
  });

  it('returns events that were appended after a torn line', async () => {
    const { ledger, state, id, path } = await made();
    appendFileSync(path, '{"v":1,"type":"obser');
    expect((await ledger.read(id))?.state).toBe('prepared');
    await ledger.append(id, accepted);
    await ledger.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    for (const each of [ledger, await openFileLedger(state, () => now)])
      expect(await each.read(id)).toMatchObject({
        state: 'running',
        handle: 'task_1',
        record: { damaged: 0 },
      });
  });

  it('keeps its handle even if the beginning of its record is damaged', async () => {
    const { ledger, id, path } = await made({ type: 'sending', attempt: 1, owner: deadOwner() }, accepted);
    const text = readFileSync(path, 'utf8');
    writeFileSync(path, text.replace('"f1"', '"f2"'));
    // Every read returns the same result.
    for (let reads = 0; reads < 2; reads += 1)
      expect(await ledger.read(id)).toMatchObject({ state: 'queued', handle: 'task_1', protocol: 'a' });
  });

  it('is treated as damaged if its record cannot be read, unless this process has too many open files', async () => {
    const { ledger, path, id } = await made(sending());
    const events = await ledger.events(id);
    appendFileSync(path, 'more');
    const codes = ['EMFILE', 'EACCES'];
    onOpen((file) => {
      if (file === path) throw Object.assign(new Error('no'), { code: codes.shift() });
    });
    await expect(ledger.read(id)).rejects.toMatchObject({ code: 'local_io' });
    expect(await ledger.read(id)).toMatchObject({ state: 'unknown' });
    expect(events).toHaveLength(2);
  });
});

describe("in place of a job's file,", () => {
  const odd: [string, (path: string) => void][] = [
    ['an empty file', (path) => writeFileSync(path, '')],
    [
      'a record of a future version',
      (path) => writeFileSync(path, '{"v":2,"type":"prepared","crc":"00000000"}\n'),
    ],
    ['binary data', (path) => writeFileSync(path, Buffer.from([0xff, 0xfe, 0, 10, 10]))],
    ['a link to another file', (path) => symlinkSync('/etc/hostname', path)],
    ['a link to nowhere', (path) => symlinkSync('/nowhere', path)],
    ['a FIFO', (path) => expect(spawnSync('mkfifo', [path]).status).toBe(0)],
    ['a folder', (path) => mkdirSync(path)],
  ];
  it.each(odd)(
    '%s is read as a job in doubt, and neither affects other jobs nor is written to',
    async (kind, put) => {
      const { ledger, id, path } = await made(accepted);
      const other = newJobId(now + 1);
      await ledger.create(other, [prepared, accepted]);
      rmSync(path);
      put(path);
      expect(await ledger.read(id)).toMatchObject({ id, state: 'unknown' });
      expect(await ledger.read(other)).toMatchObject({ state: 'queued' });
      expect(await ledger.ids()).toEqual([other, id]);
      if (/link|FIFO|folder/.test(kind))
        await expect(ledger.append(id, accepted)).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
    },
  );

  it.skipIf(process.getuid?.() === 0)(
    'a file without read permission is read as a job in doubt',
    async () => {
      const { ledger, id, path } = await made(accepted);
      chmodSync(path, 0);
      expect(await ledger.read(id)).toMatchObject({ state: 'unknown' });
    },
  );

  it('a link is not followed when a job is written, regardless of its target', async () => {
    const { ledger, id, path, state } = await made(accepted);
    const elsewhere = join(state, 'elsewhere');
    renameSync(path, elsewhere);
    symlinkSync(elsewhere, path);
    const before = readFileSync(elsewhere, 'utf8');
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({ code: 'local_io' });
    expect(readFileSync(elsewhere, 'utf8')).toBe(before);
  });
});

it.each<[string, (ledger: Ledger) => Promise<unknown>]>([
  ['job', (ledger) => ledger.create(newJobId(now + 1), [prepared])],
  ['claim', (ledger) => ledger.claim('send', 'mine')],
])('the file ledger syncs existing folders before its first %s, but not before a read', async (_, give) => {
  const { state, id } = await made();
  const seen: string[] = [];
  await onDisk(({ name, path = '' }) => {
    if (name === 'sync') seen.push(path);
  });
  const ledger = await openFileLedger(state, () => now);
  expect(await ledger.read(id)).toMatchObject({ id });
  expect(seen).toEqual([]);
  await give(ledger);
  expect(seen.slice(0, 2)).toEqual([dirname(state), state]);
});

it.each([
  ['written', 'write', false],
  ['created', 'open', true],
])(
  'creating a job fails if the index cannot be %s, even if that would succeed a moment later',
  async (_, operation, isMissing) => {
    const { ledger, state } = await made();
    if (isMissing) for (const name of ['index.log', 'index.count']) rmSync(join(state, name));
    let tries = 0;
    await onDisk(({ name, path = '' }) => {
      if (name === operation && path.endsWith('index.log') && (tries += 1) === 1)
        throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    });
    await expect(ledger.create(newJobId(now), [prepared])).rejects.toMatchObject({
      code: 'local_io',
      message: expect.stringContaining('full') as string,
    });
    expect(tries).toBe(1);
  },
);

describe('a claim', () => {
  it('leaves no other files, whether it is won or lost', async () => {
    const { ledger, state } = await made();
    await Promise.all(Array.from({ length: 5 }, (_, index) => ledger.claim('send', `p${index}`)));
    expect(readdirSync(join(state, 'claims')).sort()).toEqual(['.complete', 'send', 'take.f1']);
  });

  it('is made once the folders can be synced, even if an earlier sync failed', async () => {
    const { state } = await made();
    const ledger = await openFileLedger(state, () => now);
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path }, run) =>
      name === 'sync' && path === dirname(state) ? Promise.reject(new Error('EIO')) : run(),
    );
    await expect(ledger.claim('first', 'mine')).rejects.toMatchObject({ code: 'local_io' });
    await watchDisk(undefined);
    expect(await ledger.claim('first', 'mine')).toBeUndefined();
  });

  // After a power cut, an attempt without a record would look like a lost job.
  it("is made for an attempt only once every record's name is durable, even if another process created the record", async () => {
    const { ledger, state, id } = await made();
    await ledger.claim('first', 'mine');
    const seen: string[] = [];
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path = '' }, run) => {
      const note = (): void => void seen.push(`${name} ${relative(state, path)}`);
      const result = run();
      if (!(result instanceof Promise)) note();
      return result instanceof Promise ? result.then(note) : result;
    });
    await ledger.claim(names.attempt(id, 1), 'mine');
    expect(seen[0]).toBe('sync jobs');
  });

  it('can be confirmed, and other processes see the confirmation', async () => {
    const { ledger, state } = await made();
    const other = await openFileLedger(state, () => now);
    for (const name of ['sent', 'unsent']) await ledger.claim(name, 'mine');
    await ledger.confirm('sent');
    const names = ['sent', 'unsent', 'free'];
    expect(await Promise.all(names.map((name) => other.isConfirmed(name)))).toEqual([true, false, false]);
    expect(await Promise.all(names.map((name) => other.claimed(name)))).toEqual(['mine', 'mine', undefined]);
  });

  it('is still in effect if its content is damaged, or has been empty for a long time', async () => {
    const { ledger, state } = await made();
    await ledger.claim('send', 'content');
    const path = join(state, 'claims', 'send');
    const whole = readFileSync(path);
    const flips = Array.from({ length: whole.length }, (_, at) => {
      const flipped = Buffer.from(whole);
      flipped[at] = (flipped[at] ?? 0) ^ (1 << (at & 7));
      return flipped;
    });
    const cuts = [...whole.keys()].map((cut) => whole.subarray(0, cut));
    for (const damaged of [...cuts, ...flips]) {
      writeFileSync(path, damaged);
      utimesSync(path, 1, 1);
      expect(await ledger.claimed('send')).toBe('');
      expect(await ledger.claim('send', 'mine')).toBe('');
    }
  });

  it('is read once, and no other file is opened', async () => {
    const { ledger, state } = await made();
    await ledger.claim('send', 'mine');
    const opened: PathLike[] = [];
    onOpen((file) => opened.push(file));
    expect(await ledger.claimed('send')).toBe('mine');
    expect(opened).toEqual([join(state, 'claims', 'send')]);
  });

  it('is read again if its file is empty at first', async () => {
    const { ledger, state } = await made();
    await ledger.claim('send', 'content');
    const [path, whole] = [join(state, 'claims', 'send'), join(state, 'whole')];
    renameSync(path, whole);
    writeFileSync(path, '');
    let isOpened = false;
    // The process that writes the claim continues only while this one waits.
    onOpen((file) => {
      if (file === path && !isOpened) setImmediate(() => renameSync(whole, path));
      isOpened ||= file === path;
    });
    expect(await ledger.claimed('send')).toBe('content');
  });
});

it("a link in place of a job's record does not mean that the job was removed, even if the link has the record's length", async () => {
  const { ledger, id, path } = await made();
  await ledger.remove(id);
  const link = '/'.padEnd(statSync(path).size, 'x');
  rmSync(path);
  symlinkSync(link, path);
  expect(await ledger.claimState(id)).toBe('exists');
});

describe('an index', () => {
  const handleOf = (id: string): string => `task_of_${id}`;
  const make = async (ledger: Ledger, time: number): Promise<string> => {
    const id = newJobId(time);
    await ledger.create(id, [
      { ...prepared, fingerprint: 'f9' },
      { type: 'accepted', handle: handleOf(id) },
    ]);
    return id;
  };

  it('returns a job whose file was lost', async () => {
    const { ledger, state } = await made();
    const id = await make(ledger, 5);
    rmSync(join(state, 'jobs', `${id}.jsonl`));
    expect(await ledger.lookup('fingerprint', 'f9')).toEqual([id]);
    expect(await ledger.claimState(id)).toBe('lost');
  });

  it('returns a job whose record appears during the search', async () => {
    const { ledger, state } = await made();
    const id = await make(ledger, 5);
    const [path, aside] = [join(state, 'jobs', `${id}.jsonl`), join(state, 'aside')];
    renameSync(path, aside);
    const claimState = ledger.claimState(id);
    renameSync(aside, path);
    expect(await claimState).toBe('exists');
  });

  it.each<[string, (log: string, count: string) => void]>([
    ['lost', (log) => rmSync(log)],
    ['lost together with its count file', (log, count) => [log, count].forEach((path) => rmSync(path))],
    ['without its count file', (_, count) => rmSync(count)],
    ['empty', (log) => writeFileSync(log, '')],
    [
      'empty and has an empty count file',
      (log, count) => [log, count].forEach((path) => writeFileSync(path, '')),
    ],
    ['truncated after a line', (log) => truncateSync(log, statSync(log).size - 32)],
    ['truncated inside a line', (log) => truncateSync(log, 50)],
    ['full of zeros', (log) => writeFileSync(log, Buffer.alloc(statSync(log).size))],
    [
      'full of zeros, like its count',
      (...files) => {
        for (const file of files) writeFileSync(file, Buffer.alloc(statSync(file).size));
      },
    ],
    [
      'incomplete because a process died while completing it',
      (log, count) => {
        truncateSync(log, 32);
        writeFileSync(count, '+++++');
      },
    ],
  ])('is completed from the jobs before a search or an addition if it is %s', async (_, damage) => {
    for (const [adds, reads] of [[], [true], [false, true], [true, true]]) {
      const { ledger, state } = await made();
      const ids = [await make(ledger, 5), await make(ledger, 6)];
      if (reads === true) await ledger.listed({ excludeSucceeded: true });
      const logs = ['index', 'handles'].map((name) => join(state, name));
      for (const log of logs) damage(`${log}.log`, `${log}.count`);
      if (adds === true) ids.push(await make(ledger, 7));
      expect((await ledger.lookup('fingerprint', 'f9')).sort()).toEqual([...ids].sort());
      expect(await ledger.lookup('handle', handleOf(ids[0] ?? ''))).toEqual([ids[0]]);
      expect((await ledger.listed()).length).toBe(ids.length + 1);
      const sizes = (): number[] => logs.map((log) => statSync(`${log}.log`).size);
      const before = sizes();
      await ledger.lookup('fingerprint', 'f9');
      await ledger.lookup('handle', 'task_9');
      expect(sizes()).toEqual(before);
    }
  });

  it('excludes succeeded jobs from a list even after the index was lost', async () => {
    const { ledger, state, id } = await made();
    const other = await make(ledger, 5);
    await ledger.append(other, { type: 'finished', state: 'succeeded', native_status: 'ok' });
    for (const name of ['handles.log', 'handles.count']) rmSync(join(state, name));
    expect((await ledger.listed({ excludeSucceeded: true })).slice()).toEqual([id]);
  });

  it("regains a job's line if the index file is lost before the job's record is written", async () => {
    const state = freshFolder();
    const [path, jobs] = [join(state, 'index.log'), join(state, 'jobs')];
    mkdirSync(jobs);
    const index = new JobIndex(state, {
      folder: jobs,
      ids: () => [],
      entriesOf: () => [],
    });
    const [id, other] = [newJobId(now), newJobId(now + 1)];
    const add = (each: string) => () => index.add([{ kind: 'fingerprint', value: 'f1', id: each }]);
    await writeIndexed(add(id), async () => {
      rmSync(path);
      await add(other)();
    });
    expect(await index.find('fingerprint', 'f1')).toEqual([id, other]);
    await writeIndexed(add(id), () => fs.promises.rm(path));
    expect(await index.find('fingerprint', 'f1')).toEqual([id]);
    await writeIndexed(add(other), () => fs.promises.truncate(path));
    expect(await index.find('fingerprint', 'f1')).toEqual([other]);
  });

  it("regains a job's line if the line is lost, and the index completed, before the job's record is written", async () => {
    const state = freshFolder();
    const [path, jobs] = [join(state, 'index.log'), join(state, 'jobs')];
    mkdirSync(jobs);
    const open = (): JobIndex => new JobIndex(state, { folder: jobs, ids: () => [], entriesOf: () => [] });
    const [index, id] = [open(), newJobId(now)];
    const entry = { kind: 'fingerprint', value: 'f1', id } as const;
    await writeIndexed(
      () => index.add([entry]),
      async () => {
        truncateSync(path);
        expect(await open().find('fingerprint', 'f1')).toEqual([]);
      },
    );
    expect(await open().find('fingerprint', 'f1')).toEqual([id]);
  });

  it('lists all jobs even if both of its files are emptied before a job is added', async () => {
    const { ledger, state, id } = await made();
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep((change, path) => {
      if (change !== 'append' || !path.endsWith('index.count')) return;
      beforeEachStep(undefined);
      for (const name of ['index.log', 'index.count']) truncateSync(join(state, name));
    });
    const other = await make(ledger, 5);
    const later = await openFileLedger(state, () => now);
    expect((await later.listed()).slice()).toEqual([id, other]);
  });

  it('lists all jobs even if its count is emptied, and its log removed, after another process completed it', async () => {
    const { ledger, state, id } = await made();
    const [log, count] = [join(state, 'index.log'), join(state, 'index.count')];
    const open = (): Promise<Ledger> => openFileLedger(state, () => now);
    rmSync(log);
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep(async (_, path) => {
      if (path !== log) return;
      beforeEachStep(undefined);
      await (await open()).listed();
      beforeEachStep((change) => {
        if (change === 'append') truncateSync(count);
      });
    });
    await ledger.listed();
    beforeEachStep(undefined);
    rmSync(log);
    expect((await (await open()).listed()).slice()).toEqual([id]);
  });

  it('is not changed by a search if it is complete or there are no jobs', async () => {
    const { ledger, id } = await made(accepted);
    const empty = await openFileLedger(freshFolder(), () => now);
    const seen: string[] = [];
    await onDisk(({ name }) => void seen.push(name));
    expect(await ledger.lookup('handle', 'task_1')).toEqual([id]);
    expect(await ledger.ids()).toEqual([id]);
    expect(await empty.lookup('handle', 'task_1')).toEqual([]);
    expect((await empty.listed()).slice()).toEqual([]);
    expect(seen).toEqual([]);
  });

  it('is searched without reading the jobs while another process is about to write a line that it has counted', async () => {
    const { ledger, state, id, path } = await made(accepted);
    const reader = await openFileLedger(state, () => now);
    let found: Promise<string[]> | undefined;
    const opened: PathLike[] = [];
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep((change, file) => {
      if (change !== 'append' || !file.endsWith('index.log')) return;
      beforeEachStep(undefined);
      onOpen((each) => opened.push(each));
      found = reader.lookup('fingerprint', 'f1');
    });
    await make(ledger, 5);
    expect(await found).toEqual([id]);
    expect(opened).not.toContain(path);
  });

  it('gains lines from several processes at once without reading the jobs', async () => {
    const { state, id, path } = await made(accepted);
    const [first, second] = [await openFileLedger(state, () => now), await openFileLedger(state, () => now)];
    const opened: PathLike[] = [];
    onOpen((file) => opened.push(file));
    let [countedBySecond, endedByFirst] = [(): void => undefined, (): void => undefined];
    const secondCounts = new Promise<void>((resolve) => (countedBySecond = resolve));
    const firstEnds = new Promise<void>((resolve) => (endedByFirst = resolve));
    const isOfLog = (change: string, file: string): boolean =>
      change === 'append' && file.endsWith('index.log');
    let otherId: Promise<string> | undefined;
    onEnd(() => beforeEachStep(undefined));
    // Both processes have counted their lines before the first one writes, and the second one writes last.
    beforeEachStep((...step) => {
      if (!isOfLog(...step)) return;
      beforeEachStep((...nextStep) => {
        if (!isOfLog(...nextStep)) return;
        beforeEachStep(undefined);
        countedBySecond();
        return firstEnds;
      });
      otherId = make(second, 6);
      return secondCounts;
    });
    const firstId = await make(first, 5);
    endedByFirst();
    const ids = [id, await otherId, firstId];
    expect((await first.listed()).slice()).toEqual(ids);
    expect(opened).not.toContain(path);
  });

  describe('in which other processes count lines before each search', () => {
    const lines = [6, 7].map((at) => indexLine({ kind: 'fingerprint', value: 'f9', id: newJobId(at) }));
    // Calls `act` with the number of the check, before each check of the count.
    const onCheck = (count: string, act: (check: number) => void): void => {
      let [check, isInCheck] = [0, false];
      const { statSync: stat } = fs;
      vi.spyOn(fs, 'statSync').mockImplementation((...args) => {
        if (!isInCheck && args[0] === count) {
          isInCheck = true;
          setImmediate(() => (isInCheck = false));
          act((check += 1));
        }
        return stat(...args);
      });
      syncBuiltinESMExports();
      onEnd(() => {
        vi.mocked(fs.statSync).mockRestore();
        syncBuiltinESMExports();
      });
    };

    it('waits for the lines instead of reading the jobs', async () => {
      const { state, id, path } = await made();
      const [log, count] = [join(state, 'index.log'), join(state, 'index.count')];
      const ledger = await openFileLedger(state, () => now);
      const opened: PathLike[] = [];
      onOpen((file) => opened.push(file));
      onCheck(count, (check) => {
        if (check < 3) appendFileSync(count, countLine(totalOf(lines.slice(check - 1, check))));
        else if (check === 3) appendFileSync(log, lines.join(''));
      });
      expect(await ledger.lookup('fingerprint', 'f9')).toHaveLength(2);
      expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
      expect(opened).not.toContain(path);
    });

    it('is completed without removing a line from the count that a process is about to write', async () => {
      const { state, path } = await made();
      const [log, count] = [join(state, 'index.log'), join(state, 'index.count')];
      truncateSync(log);
      const [line = ''] = lines;
      const opened: PathLike[] = [];
      let next: (() => void) | undefined;
      onCheck(count, () => {
        next?.();
        next = undefined;
      });
      onOpen((file) => {
        opened.push(file);
        if (file !== path || opened.indexOf(path) < opened.length - 1) return;
        appendFileSync(count, countLine(totalOf([line])));
        next = () => appendFileSync(log, line);
      });
      const lookup = async (): Promise<string[]> =>
        (await openFileLedger(state, () => now)).lookup('fingerprint', 'f9');
      await lookup();
      opened.length = 0;
      expect(await lookup()).toHaveLength(1);
      expect(opened).not.toContain(path);
    });

    it('is completed if the lines never arrive', async () => {
      const { state, id, path } = await made();
      const [ledger, count] = [await openFileLedger(state, () => now), join(state, 'index.count')];
      const opened: PathLike[] = [];
      onOpen((file) => opened.push(file));
      onCheck(count, () => appendFileSync(count, 'CUTD\n'));
      expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
      expect(opened).toContain(path);
    });
  });

  it("gains a new job's lines without reading the other jobs", async () => {
    const { state, path } = await made(accepted);
    const other = await openFileLedger(state, () => now);
    const opened: PathLike[] = [];
    onOpen((file) => opened.push(file));
    await make(other, 5);
    expect(opened).not.toContain(path);
  });

  it.each([
    ['', false],
    [', even if both processes have tried to create the job', true],
  ])("regains the line of another process's job once the job is sent%s", async (_, triesBoth) => {
    const { ledger, state, id: first } = await made();
    const files = ['index.log', 'index.count'].map((name) => join(state, name));
    const [log = ''] = files;
    const earlier = files.map((file) => readFileSync(file));
    const other = await openFileLedger(state, () => now);
    const id = newJobId(5);
    const create = async (): Promise<void> => expect(await ledger.create(id, [prepared])).toBe(true);
    if (triesBoth) {
      onEnd(() => beforeEachStep(undefined));
      beforeEachStep(async (change) => {
        if (change !== 'link') return;
        beforeEachStep(undefined);
        await create();
      });
      expect(await other.create(id, [prepared])).toBe(false);
    } else await create();
    expect((await other.listed()).slice()).toEqual([first, id]);
    // Simulates that the process that created the job died before it noticed that the index had been replaced by one
    // without the job.
    for (const [index, file] of files.entries()) {
      writeFileSync(`${file}.new`, earlier[index] ?? '');
      renameSync(`${file}.new`, file);
    }
    expect((await ledger.listed()).slice()).toEqual([first]);
    let syncs = 0;
    await onDisk(({ name, path }) => {
      if (name === 'sync' && path === log) syncs += 1;
    });
    for (let times = 0; times < 2; times += 1) {
      await other.append(id, sending());
      expect((await other.listed()).slice()).toEqual([first, id]);
    }
    expect([statSync(log).size, syncs]).toEqual([2 * 32, 1]);
  });

  it('is read again from its beginning if it was replaced by a file that is at least as long', async () => {
    const { ledger, state } = await made();
    await make(ledger, 5);
    expect(await ledger.lookup('fingerprint', 'f9')).toHaveLength(1);
    // A new index lists the jobs in the order of their ids. This process already knows the job on the last line.
    const lose = (): void => {
      for (const name of ['index.log', 'index.count']) rmSync(join(state, name));
    };
    lose();
    const earlier = newJobId(now - 1000);
    const other = await openFileLedger(state, () => now);
    await other.create(earlier, [{ ...prepared, fingerprint: 'f0' }]);
    lose();
    expect(await (await openFileLedger(state, () => now)).lookup('fingerprint', 'f0')).toEqual([earlier]);
    expect(await ledger.lookup('fingerprint', 'f0')).toEqual([earlier]);
  });

  it('has its count corrected once, rather than by each command, if a counted line belongs to no job', async () => {
    const { ledger, state, id } = await made();
    const [log, count] = [join(state, 'index.log'), join(state, 'index.count')];
    appendFileSync(count, 'CUTD\n');
    expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
    const sizes = (): number[] => [log, count].map((path) => statSync(path).size);
    const corrected = sizes();
    expect((await ledger.listed()).slice()).toEqual([id]);
    expect(sizes()).toEqual(corrected);
  });

  it('is not completed if its count contains a torn line', async () => {
    const { ledger, state, id } = await made();
    const files = ['index.log', 'index.count'].map((name) => join(state, name));
    const [, count = ''] = files;
    writeFileSync(count, `\nCU\n${readFileSync(count, 'latin1')}`);
    const sizes = (): number[] => files.map((path) => statSync(path).size);
    const before = sizes();
    expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
    expect(sizes()).toEqual(before);
  });

  it('is read again if both of its files were replaced by files of the same length', async () => {
    const { ledger, state } = await made();
    const { ledger: other, state: otherState } = await made();
    const [id, otherId] = [await make(ledger, 5), newJobId(5)];
    expect(await other.create(otherId, [{ ...prepared, fingerprint: 'f0' }])).toBe(true);
    expect(await ledger.lookup('fingerprint', 'f9')).toEqual([id]);
    for (const name of ['index.log', 'index.count']) {
      expect(statSync(join(otherState, name)).size).toBe(statSync(join(state, name)).size);
      renameSync(join(otherState, name), join(state, name));
    }
    expect(await ledger.lookup('fingerprint', 'f0')).toEqual([otherId]);
  });

  it('is not completed again because its count was corrected while a line was written', async () => {
    const { ledger, state, id, path } = await made();
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep((change, file) => {
      if (change !== 'append' || !file.endsWith('index.log')) return;
      beforeEachStep(undefined);
      appendFileSync(join(state, 'index.count'), countLine(0, true));
    });
    await make(ledger, 5);
    const opened: PathLike[] = [];
    onOpen((file) => opened.push(file));
    const later = await openFileLedger(state, () => now);
    expect(await later.lookup('fingerprint', 'f1')).toEqual([id]);
    expect(opened).not.toContain(path);
  });

  it.each<[string, (files: { log: string; count: string }) => unknown, newJobs?: number]>([
    ['it was removed', ({ log }) => rmSync(log)],
    ['another process completed it', () => undefined],
    ['its count was emptied and corrected', ({ count }) => truncateSync(count)],
    ['its count was removed and written again', ({ count }) => rmSync(count)],
    ['its count was removed and became longer than before', ({ count }) => rmSync(count), 2],
    ['its count was emptied and became longer than before', ({ count }) => truncateSync(count), 2],
  ])(
    'regains a new line that is lost, even if %s between the count and the line',
    async (_, act, newJobs = 0) => {
      const { ledger, state, id } = await made();
      const [log, reader] = [join(state, 'index.log'), await openFileLedger(state, () => now)];
      onEnd(() => beforeEachStep(undefined));
      beforeEachStep(async (change, path) => {
        if (change !== 'append' || path !== log) return;
        beforeEachStep(undefined);
        act({ log, count: join(state, 'index.count') });
        await reader.lookup('fingerprint', 'f1');
        for (let time = 1; time <= newJobs; time += 1) await make(reader, time);
      });
      const other = await make(ledger, 5);
      truncateSync(log, statSync(log).size - 32);
      const later = await openFileLedger(state, () => now);
      expect((await later.listed()).slice(0, 2)).toEqual([id, other]);
    },
  );

  it('is searched on a full disk only if it contains every job', async () => {
    const { ledger, state, id } = await made();
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep((change, path) => {
      if (change === 'append' && path.endsWith('index.count'))
        throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    });
    appendFileSync(join(state, 'index.count'), 'CUTD\n');
    expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
    truncateSync(join(state, 'index.log'));
    await expect(ledger.lookup('fingerprint', 'f1')).rejects.toMatchObject({ code: 'local_io' });
    expect(statSync(join(state, 'index.log')).size).toBe(0);
  });

  it('regains a lost line even if another process counts a line, and writes it only after a search', async () => {
    const { ledger, state, id } = await made();
    const log = join(state, 'index.log');
    const other = await make(ledger, 5);
    onEnd(() => beforeEachStep(undefined));
    beforeEachStep(async (change, path) => {
      if (change !== 'append' || path !== log) return;
      beforeEachStep(undefined);
      const reader = await openFileLedger(state, () => now);
      expect(await reader.lookup('fingerprint', 'f1')).toEqual([id]);
      const lines = readFileSync(log);
      writeFileSync(log, Buffer.concat([lines.subarray(0, 32), lines.subarray(64)]));
    });
    const third = await make(ledger, 6);
    const later = await openFileLedger(state, () => now);
    expect((await later.listed()).slice()).toEqual([id, third, other]);
  });

  it('regains a lost line even if it had a surplus line before', async () => {
    const { ledger, state, id } = await made();
    const other = await make(ledger, 5);
    const log = join(state, 'index.log');
    const lines = readFileSync(log, 'latin1').match(/.{31}\n/g) ?? [];
    writeFileSync(log, [...lines.slice(0, 1), ...lines].join(''), 'latin1');
    for (const fingerprint of ['f1', 'f9']) await ledger.lookup('fingerprint', fingerprint);
    truncateSync(log, 32 * lines.length);
    const later = await openFileLedger(state, () => now);
    expect((await later.listed()).slice()).toEqual([id, other]);
  });

  it.each([
    ['cut', (log: string): void => truncateSync(log)],
    ['removed', (log: string): void => rmSync(log)],
  ])('finds every job even if it is %s while it is being completed', async (_, damage) => {
    const { ledger, state, id } = await made();
    truncateSync(join(state, 'index.log'));
    onEnd(() => beforeEachStep(undefined));
    const damaged: string[] = [];
    beforeEachStep((change, path) => {
      if (change !== 'append' || !path.endsWith('index.log')) return;
      beforeEachStep(undefined);
      damaged.push(path);
      damage(path);
    });
    expect(await ledger.lookup('fingerprint', 'f1')).toEqual([id]);
    expect(damaged).toHaveLength(1);
  });

  it('is completed once, rather than by each command, if no job has a handle', async () => {
    const { ledger, state } = await made();
    for (let lookups = 0; lookups < 2; lookups += 1)
      expect(await ledger.lookup('handle', 'task_1')).toEqual([]);
    const [log, count] = [join(state, 'handles.log'), join(state, 'handles.count')];
    expect([statSync(log).size, statSync(count).size]).toEqual([0, 5]);
  });

  it('is not needed to list the jobs', async () => {
    const { ledger, state, id } = await made();
    rmSync(join(state, 'index.log'));
    mkdirSync(join(state, 'index.log'));
    expect(await ledger.listed()).toEqual([id]);
    expect(await ledger.ids()).toEqual([id]);
  });

  it('finds every job on every read, even among torn or merged lines', async () => {
    const { ledger, state } = await made();
    const logs = ['index.log', 'handles.log'].map((name) => join(state, name));
    const ids: string[] = [];
    for (const rubbish of ['\n', '0123456789', '\n\n', `${'x'.repeat(31)}\n`, '']) {
      ids.push(await make(ledger, 5 + ids.length));
      for (const log of logs) appendFileSync(log, rubbish);
    }
    const sizes = logs.map((log) => statSync(log).size);
    for (let lookups = 0; lookups < 30; lookups += 1) {
      expect(await ledger.lookup('fingerprint', 'f9')).toEqual([...ids].reverse());
      for (const id of ids) expect(await ledger.lookup('handle', handleOf(id))).toEqual([id]);
    }
    expect(logs.map((log) => statSync(log).size)).toEqual(sizes);
  });
});

describe('claims whose folder was lost', () => {
  it('are created again from the jobs, with the same result in every process', async () => {
    const { ledger, state, id } = await made();
    const ids = [id, newJobId(now + 1), newJobId(now + 2), newJobId(now + 3)];
    for (const each of ids.slice(1, 3)) await ledger.create(each, [prepared]);
    await ledger.create(ids[3] ?? '', [{ ...prepared, key: 'boat' }, sending(), accepted]);
    rmSync(join(state, 'claims'), { recursive: true });
    const all = await Promise.all([1, 2, 3].map(() => openFileLedger(state, () => now)));
    const names = ['take.f1', `take.${ids[0]}`, `take.${ids[1]}`, 'key.boat'];
    const found = await Promise.all(all.map((each) => Promise.all(names.map((name) => each.claimed(name)))));
    for (const texts of found) expect(texts.map((text) => readHolder(text ?? '')?.job)).toEqual(ids);
    expect(await ledger.claimed(`send.${ids[3]}.1`)).toBeDefined();
    expect(await ledger.claimed(`take.${ids[2]}`)).toBeUndefined();
  });

  it('are created again without replacing the remaining claims', async () => {
    const state = freshFolder();
    const ledger = await openFileLedger(state, () => now);
    // The clock was set back between the two jobs.
    const [first, second] = [newJobId(now), newJobId(now - 1)];
    await ledger.claim('take.f1', holderText({ job: first, fingerprint: 'f1', owner: deadOwner() }));
    for (const id of [first, second]) await ledger.create(id, [prepared]);
    rmSync(join(state, 'claims', '.complete'));
    const other = await openFileLedger(state, () => now);
    expect(readHolder((await other.claimed(`take.${first}`)) ?? '')?.job).toBe(second);
  });
});

it('a name cannot be claimed if lost claims cannot be created again', async () => {
  const { ledger, state } = await made();
  rmSync(join(state, 'claims'), { recursive: true });
  mkdirSync(join(state, 'claims'));
  onEnd(() => watchDisk(undefined));
  for (const refused of ['take.f1', '.complete']) {
    await watchDisk(({ name, path }, run) => {
      if (name === 'open' && path === join(state, 'claims', refused))
        throw Object.assign(new Error('full'), { code: 'ENOSPC' });
      return run();
    });
    await expect(ledger.claim('take.f1', 'mine')).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
  }
  await watchDisk(undefined);
  expect(readHolder((await ledger.claim('take.f1', 'mine')) ?? '')).toMatchObject({ fingerprint: 'f1' });
});

describe('on a full disk,', () => {
  /** Makes writes to the record at `path` fail with ENOSPC until the returned function is called. */
  async function full(path: string): Promise<() => Promise<void>> {
    await onDisk(({ name, path: written }) => {
      if (name === 'write' && written === path) throw Object.assign(new Error('full'), { code: 'ENOSPC' });
    });
    return () => watchDisk(undefined);
  }

  const typesIn = async (ledger: Ledger, id: string): Promise<(string | undefined)[]> =>
    (await ledger.events(id)).map((event) => event?.type);

  it.each<[string, (made: Made) => Promise<void>, string[]]>([
    ['when the process waits for another process', ({ ledger }) => ledger.flush(), []],
    ['before the next event', ({ ledger, id }) => ledger.append(id, { type: 'rated', rating: 5 }), ['rated']],
  ])('events are kept in memory and recorded once each, in order, %s', async (_, retry, after) => {
    const all = await made(sending());
    const { ledger, id, path, state } = all;
    const free = await full(path);
    const reply: JobEvent = {
      type: 'reply',
      attempt: 1,
      reply: { status: 200, headers: {}, text: '{}', complete: true },
    };
    for (const event of [reply, accepted, { type: 'rated', rating: 1 } as const])
      await expect(ledger.append(id, event)).rejects.toMatchObject({ code: 'local_io' });
    await ledger.flush();
    expect(await typesIn(ledger, id)).toEqual(['prepared', 'sending']);
    await free();
    await retry(all);
    await ledger.flush();
    expect(await typesIn(ledger, id)).toEqual(['prepared', 'sending', 'reply', 'accepted', ...after]);
    const other = await openFileLedger(state, () => now);
    expect(await other.lookup('handle', 'task_1')).toEqual([id]);
  });

  it('a pending event is dropped if its job is removed', async () => {
    const { ledger, id, path } = await made(sending());
    const free = await full(path);
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({ code: 'local_io' });
    await free();
    await ledger.remove(id);
    await ledger.flush();
    await ledger.create(id, [prepared], true);
    await ledger.flush();
    expect(await typesIn(ledger, id)).toEqual(['prepared']);
  });
});

it('job ids are listed only for job files, newest first', async () => {
  const { ledger, state, id } = await made();
  const newer = newJobId(now + 1000);
  await ledger.create(newer, [prepared]);
  for (const odd of ['x.jsonl', `${id}.jsonl.draft.tmp`, '.DS_Store', 'job_.jsonl'])
    writeFileSync(join(state, 'jobs', odd), '');
  expect(await ledger.ids()).toEqual([newer, id]);
});

it('the state folder and its subfolders may be links to folders', async () => {
  const folder = freshFolder();
  const state = join(folder, 'link');
  symlinkSync(join(folder, 'state'), state);
  mkdirSync(join(folder, 'state'));
  for (const name of ['jobs', 'claims']) {
    symlinkSync(join(folder, name), join(state, name));
    mkdirSync(join(folder, name));
  }
  const ledger = await openFileLedger(state, () => now);
  const id = newJobId(now);
  expect(await ledger.create(id, [prepared])).toBe(true);
  expect(await ledger.claim('send', 'mine')).toBeUndefined();
  expect(readdirSync(join(folder, 'jobs'))).toEqual([`${id}.jsonl`]);
});

describe('the state folder', () => {
  it.each(['.', 'jobs', 'claims'])(
    'is refused with exit 10 and a suggested chmod command if other users can write to %s',
    async (name) => {
      const { state } = await made();
      const folder = join(state, name);
      chmodSync(folder, 0o777);
      await expect(openFileLedger(state, () => now)).rejects.toMatchObject({
        exitCode: 10,
        next: ['chmod', '700', folder],
      });
    },
  );

  it.each([
    ['a file', (path: string) => writeFileSync(path, '')],
    ['a link to nowhere', (path: string) => symlinkSync('/nowhere/at/all', path)],
  ])('is refused with exit 10 and its path if it is %s', async (_, put) => {
    const state = join(freshFolder(), 'state');
    put(state);
    await expect(openFileLedger(state, () => now)).rejects.toMatchObject({
      code: 'local_io',
      exitCode: 10,
      message: expect.stringContaining(state) as string,
    });
  });
});

const PROGRAM = `
  import { openFileLedger } from './ledger.mjs';
  const [state, id, name] = process.argv.slice(2);
  const ledger = await openFileLedger(state, () => Date.now());
  const won = [];
  for (let count = 0; count < 50; count += 1) {
    await ledger.append(id, { type: 'observed', state: 'running', native_status: name + '.' + count + 'x'.repeat(count * 8) });
    if (count % 10 === 0 && (await ledger.claim('claim.' + count, name)) === undefined) won.push(count);
  }
  console.log(JSON.stringify(won));
`;

it('three processes that append 50 lines each lose no line, and exactly one process wins each claim', async () => {
  const { state, id, path, ledger } = await made(accepted);
  const folder = freshFolder();
  await build({
    input: 'src/ledger/file-ledger.ts',
    platform: 'node',
    output: { file: join(folder, 'ledger.mjs'), format: 'esm' },
    logLevel: 'silent',
  });
  writeFileSync(join(folder, 'program.mjs'), PROGRAM);
  const names = ['p0', 'p1', 'p2'];
  const won = await Promise.all(
    names.map(async (name) => {
      const run = await promisify(execFile)(process.execPath, [join(folder, 'program.mjs'), state, id, name]);
      return JSON.parse(run.stdout) as number[];
    }),
  );
  const events = decodeEvents(readFileSync(path, 'utf8'));
  const seen = events.flatMap((event) => (event?.type === 'observed' ? [event.native_status] : []));
  const written = names.flatMap((name) =>
    Array.from({ length: 50 }, (_, count) => `${name}.${count}${'x'.repeat(count * 8)}`),
  );
  expect(seen.sort()).toEqual(written.sort());
  expect(events).toHaveLength(152);
  expect((await ledger.read(id))?.record.damaged).toBe(0);
  expect(won.flat().sort((one, other) => one - other)).toEqual([0, 10, 20, 30, 40]);
});
