import { execFile, spawnSync } from 'node:child_process';
import fs, {
  appendFileSync,
  constants,
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  truncateSync,
  utimesSync,
} from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { build } from 'rolldown';
import { describe, expect, it, vi } from 'vitest';
import type { JobEvent } from '../../src/job.ts';
import { decodeEvents } from '../../src/ledger/event-log.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { lineOf } from '../../src/ledger/index-lines.ts';
import { jobIdForm, newJobId } from '../../src/ledger/job-id.ts';
import type { Ledger } from '../../src/ledger/ledger.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk } from '../support/disk-operations.ts';
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

function filesUnder(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

describe('a job', () => {
  it('has another version after each event, and after whatever else becomes of its record', async () => {
    const { ledger, id, path } = await made(accepted);
    const versions = [await ledger.version(id)];
    await ledger.append(id, { type: 'finished', state: 'succeeded', native_status: 'ok' });
    versions.push(await ledger.version(id));
    const text = readFileSync(path, 'utf8');
    writeFileSync(path, text.replace('succeeded', 'succeedee'));
    versions.push(await ledger.version(id));
    rmSync(path);
    versions.push(await ledger.version(id));
    expect(new Set(versions).size).toBe(4);
    expect(versions[3]).toBeUndefined();
  });

  it('is read as it stands, whatever others do to its record, and is not read where nobody did anything', async () => {
    const { ledger, state, id, path } = await made();
    const other = await openFileLedger(state, () => now);
    const read = async (): Promise<unknown> => {
      const { handle, native_status, rating, record } = (await ledger.read(id)) ?? {};
      return [handle, native_status, rating, record?.damaged];
    };
    expect(await read()).toEqual([undefined, undefined, undefined, 0]);
    await other.append(id, accepted);
    expect(await read()).toEqual(['task_1', undefined, undefined, 0]);
    // What this one adds comes after what it has not seen.
    await other.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    await ledger.append(id, { type: 'rated', rating: 3 });
    const text = readFileSync(path, 'utf8');
    const opened = vi.spyOn(fs, 'openSync');
    syncBuiltinESMExports();
    onEnd(() => {
      opened.mockRestore();
      syncBuiltinESMExports();
    });
    for (let reads = 0; reads < 3; reads += 1) expect(await read()).toEqual(['task_1', 'run', 3, 0]);
    await ledger.append(id, { type: 'rated', rating: 4 });
    expect(await read()).toEqual(['task_1', 'run', 4, 0]);
    expect(opened.mock.calls.map(([, flags]) => Number(flags) & O_RDWR)).toEqual([0, O_RDWR]);
    writeFileSync(path, text.replace('"rating":3', '"rating":5'));
    expect(await read()).toEqual(['task_1', 'run', undefined, 1]);
    writeFileSync(`${path}.copy`, text);
    renameSync(`${path}.copy`, path);
    expect(await read()).toEqual(['task_1', 'run', 3, 0]);
    rmSync(path);
    expect(await ledger.read(id)).toBeUndefined();
  });

  it('is its owner’s alone: files 0600, folders 0700', async () => {
    const { ledger, state, id } = await made();
    await ledger.append(id, accepted);
    await ledger.claim('key.boat', `${id} f1`);
    const files = filesUnder(state);
    expect(files).toHaveLength(4);
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

  it('keeps what is appended after a torn line', async () => {
    const { ledger, id, path } = await made();
    appendFileSync(path, '{"v":1,"type":"obser');
    expect((await ledger.read(id))?.state).toBe('prepared');
    await ledger.append(id, accepted);
    await ledger.append(id, { type: 'observed', state: 'running', native_status: 'run' });
    expect(await ledger.read(id)).toMatchObject({
      state: 'running',
      handle: 'task_1',
      record: { damaged: 0 },
    });
  });

  it('keeps its handle where its beginning is damaged', async () => {
    const { ledger, id, path } = await made({ type: 'sending', attempt: 1, owner: deadOwner() }, accepted);
    const text = readFileSync(path, 'utf8');
    writeFileSync(path, text.replace('"f1"', '"f2"'));
    expect(await ledger.read(id)).toMatchObject({ state: 'queued', handle: 'task_1', protocol: 'a' });
  });

  it('keeps the time of its id where nothing else is left', async () => {
    const { ledger, id, path } = await made();
    writeFileSync(path, 'nothing');
    expect(await ledger.read(id)).toMatchObject({
      state: 'unknown',
      created_at: new Date(now).toISOString(),
    });
  });
});

describe('in place of a job’s file', () => {
  const odd: [string, (path: string) => void][] = [
    ['an empty file', (path) => writeFileSync(path, '')],
    ['a future version', (path) => writeFileSync(path, '{"v":2,"type":"prepared","crc":"00000000"}\n')],
    ['binary', (path) => writeFileSync(path, Buffer.from([0xff, 0xfe, 0, 10, 10]))],
    ['a link to another file', (path) => symlinkSync('/etc/hostname', path)],
    ['a link to nowhere', (path) => symlinkSync('/nowhere', path)],
    ['a FIFO', (path) => expect(spawnSync('mkfifo', [path]).status).toBe(0)],
    ['a folder', (path) => mkdirSync(path)],
  ];
  it.each(odd)('%s is an unknown job, and touches no other', async (_, put) => {
    const { ledger, id, path } = await made(accepted);
    const other = newJobId(now + 1);
    await ledger.create(other, [prepared, accepted]);
    rmSync(path);
    put(path);
    expect(await ledger.read(id)).toMatchObject({ id, state: 'unknown' });
    expect(await ledger.read(other)).toMatchObject({ state: 'queued' });
    expect(await ledger.ids()).toEqual([other, id]);
  });

  it.skipIf(process.getuid?.() === 0)('a file without permission is an unknown job', async () => {
    const { ledger, id, path } = await made(accepted);
    chmodSync(path, 0);
    expect(await ledger.read(id)).toMatchObject({ state: 'unknown' });
  });

  it.each(odd.slice(3))('%s is not written to', async (_, put) => {
    const { ledger, id, path } = await made(accepted);
    rmSync(path);
    put(path);
    await expect(ledger.append(id, accepted)).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
  });
});

it.each<[string, (ledger: Ledger) => Promise<unknown>]>([
  ['job', (ledger) => ledger.create(newJobId(now + 1), [prepared])],
  ['claim', (ledger) => ledger.claim('send', 'mine')],
])(
  'makes folders that it finds durable before their first %s, and for reading not at all',
  async (_, give) => {
    const { state, id } = await made();
    const seen: string[] = [];
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path = '' }, run) => {
      if (name === 'sync') seen.push(path);
      return run();
    });
    const ledger = await openFileLedger(state, () => now);
    expect(await ledger.read(id)).toMatchObject({ id });
    expect(seen).toEqual([]);
    await give(ledger);
    expect(seen.slice(0, 2)).toEqual([dirname(state), state]);
  },
);

describe('a claim', () => {
  it('takes any name, and keeps it inside its folder', async () => {
    const { ledger, state } = await made();
    const before = filesUnder(join(state, 'claims')).length;
    const names = [
      'key.../../x',
      'key.a/b',
      'key.é',
      `key.${'@'.repeat(128)}`,
      `key.${'@'.repeat(127)}`,
      'key.\n',
    ];
    for (const name of names) expect(await ledger.claim(name, name.slice(0, 6).trim())).toBeUndefined();
    for (const name of names) expect(await ledger.claimed(name)).toBe(name.slice(0, 6).trim());
    expect(filesUnder(join(state, 'claims'))).toHaveLength(before + names.length);
  });

  it('has one winner of any number, and leaves nothing else behind', async () => {
    const { ledger, state } = await made();
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, index) => ledger.claim('send', `p${index}`)),
    );
    expect(results.filter((held) => held === undefined)).toHaveLength(1);
    expect(new Set(results.filter((held) => held !== undefined)).size).toBe(1);
    expect(readdirSync(join(state, 'claims'))).toEqual(['send']);
  });

  // One that stayed would look like a submission that was lost, though nothing was sent.
  it('is not made where its folder cannot be synced', async () => {
    const { ledger, state } = await made();
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path }, run) =>
      name === 'sync' && path === join(state, 'claims') ? Promise.reject(new Error('EIO')) : run(),
    );
    await expect(ledger.claim('send', 'mine')).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
    expect(await ledger.claimed('send')).toBeUndefined();
    expect(readdirSync(join(state, 'claims'))).toEqual([]);
  });

  it.each(['EIO', 'EEXIST'])(
    'is won where its link took effect and was said to have failed: %s',
    async (code) => {
      const { ledger } = await made();
      onEnd(() => watchDisk(undefined));
      await watchDisk(({ name }, run) => {
        const result = run();
        if (name === 'link') throw Object.assign(new Error(code), { code });
        return result;
      });
      expect(await ledger.claim('send', 'mine')).toBeUndefined();
      await watchDisk(undefined);
      expect(await ledger.claim('send', 'other')).toBe('mine');
    },
  );

  it('is tentative until it is confirmed, for other processes too', async () => {
    const { ledger, state } = await made();
    const other = await openFileLedger(state, () => now);
    for (const name of ['key', 'send', 'given-up']) await ledger.claim(name, 'mine', name !== 'key');
    expect(await other.claim('send', 'theirs', true)).toBe('mine');
    const isTentative = async (): Promise<boolean[]> =>
      Promise.all(['key', 'send', 'given-up'].map((name) => other.isTentative(name)));
    expect(await isTentative()).toEqual([false, true, true]);
    await ledger.confirm('send');
    await ledger.release('given-up');
    expect(await isTentative()).toEqual([false, false, false]);
    expect(readdirSync(join(state, 'claims')).sort()).toEqual(['key', 'send']);
    // As a copy of the folder by links would leave it.
    linkSync(join(state, 'claims', 'send'), join(state, 'send'));
    expect(await other.isTentative('send')).toBe(false);
  });

  it('stands though its content is damaged', async () => {
    const { ledger, state } = await made();
    await ledger.claim('send', 'content');
    const path = join(state, 'claims', 'send');
    const whole = readFileSync(path);
    const cuts = [...whole.keys()].map((cut) => whole.subarray(0, cut));
    const flips = Array.from({ length: whole.length * 8 }, (_, bit) => {
      const flipped = Buffer.from(whole);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      return flipped;
    });
    for (const damaged of [...cuts, ...flips]) {
      writeFileSync(path, damaged);
      expect(await ledger.claimed('send')).toBe('');
      expect(await ledger.claim('send', 'mine')).toBe('');
    }
  });
});

describe('an index', () => {
  const handleOf = (id: string): string => `task_of_${id}`;
  const make = async (ledger: Ledger, time: number): Promise<string> => {
    const id = newJobId(time);
    await ledger.create(id, [
      { ...prepared, fingerprint: 'f9', key: 'boat' },
      { type: 'accepted', handle: handleOf(id) },
    ]);
    return id;
  };

  it('still gives a job whose file was lost', async () => {
    const { ledger, state } = await made();
    const id = await make(ledger, 5);
    rmSync(join(state, 'jobs', `${id}.jsonl`));
    expect(await ledger.lookup('fingerprint', 'f9')).toEqual([id]);
    expect(await ledger.read(id)).toBeUndefined();
  });

  it.each<[string, (path: string) => void]>([
    ['lost', (path) => rmSync(path)],
    [
      'empty and old',
      (path) => {
        writeFileSync(path, '');
        utimesSync(path, 1, 1);
      },
    ],
    ['cut at a line', (path) => truncateSync(path, 52)],
    [
      'an older copy',
      (path) => {
        truncateSync(path, 52);
        utimesSync(path, 1, 1);
      },
    ],
    ['full of zeros', (path) => writeFileSync(path, Buffer.alloc(statSync(path).size))],
  ])('that is %s is made again from the jobs', async (_, damage) => {
    const { ledger, state } = await made();
    const ids = [await make(ledger, 5), await make(ledger, 6)];
    damage(join(state, 'index.log'));
    expect((await ledger.lookup('fingerprint', 'f9')).sort()).toEqual([...ids].sort());
    expect(await ledger.lookup('handle', handleOf(ids[0] ?? ''))).toEqual([ids[0]]);
    const length = statSync(join(state, 'index.log')).size;
    await ledger.lookup('fingerprint', 'f9');
    expect(statSync(join(state, 'index.log')).size).toBe(length);
  });

  it('has no job that another process removed while it was made again', async () => {
    const { ledger, state } = await made();
    const [kept, removed] = [await make(ledger, 5), await make(ledger, 6)];
    const path = join(state, 'index.log');
    let writes = 0;
    onEnd(() => watchDisk(undefined));
    await watchDisk((operation, run) => {
      if (operation.name === 'write' && operation.path === path) writes += 1;
      // The first makes an empty file.
      if (operation.name === 'write' && operation.path === path && writes === 2) {
        appendFileSync(path, lineOf({ kind: 'removed', value: removed, id: removed }));
        rmSync(join(state, 'jobs', `${removed}.jsonl`));
      }
      return run();
    });
    rmSync(path);
    expect(await ledger.lookup('fingerprint', 'f9')).toEqual([kept]);
    expect(writes).toBe(3);
  });

  it('hides no job whichever bit of it flips', async () => {
    const { ledger, state } = await made();
    const id = await make(ledger, 5);
    const path = join(state, 'index.log');
    const bytes = readFileSync(path);
    for (let bit = 0; bit < bytes.length * 8; bit += 3) {
      const flipped = Buffer.from(bytes);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      writeFileSync(path, flipped);
      const found = await ledger.lookup('fingerprint', 'f9');
      // A damaged id names no job, which is a doubt as well.
      expect(found.length, `bit ${bit}`).toBeGreaterThan(0);
      if (found.includes(id)) continue;
      expect(await ledger.read(found[0] ?? '')).toBeUndefined();
    }
  });

  it('finds every job however often it is asked, also among lines that are torn or run together', async () => {
    const { ledger, state } = await made();
    const path = join(state, 'index.log');
    const ids: string[] = [];
    for (const rubbish of ['\n', '0123456789', '\n\n', `${'x'.repeat(51)}\n`, '']) {
      ids.push(await make(ledger, 5 + ids.length));
      appendFileSync(path, rubbish);
    }
    const text = readFileSync(path, 'latin1');
    const second = text.indexOf('\n', text.indexOf(ids[1] ?? ''));
    writeFileSync(path, `${text.slice(0, second)}x${text.slice(second + 1)}`, 'latin1');
    for (let asked = 0; asked < 30; asked += 1) {
      expect(await ledger.lookup('key', 'boat')).toEqual([...ids].reverse());
      for (const id of ids) expect(await ledger.lookup('handle', handleOf(id))).toEqual([id]);
    }
    expect(readFileSync(path, 'latin1')).toHaveLength(text.length);
  });
});

describe('ids', () => {
  it('sort by their time, and have the form that is asked of them', () => {
    const times = [0, 1, 31, 32, 1023, now - 1, now, now + 1, 2 ** 44];
    const ids = times.map((at) => newJobId(at));
    expect([...ids].sort()).toEqual(ids);
    for (const id of ids) expect(id).toMatch(jobIdForm);
    expect(new Set(Array.from({ length: 50 }, () => newJobId(now))).size).toBe(50);
  });

  it('of a folder are the jobs alone, newest first', async () => {
    const { ledger, state, id } = await made();
    const newer = newJobId(now + 1000);
    await ledger.create(newer, [prepared]);
    for (const odd of ['x.jsonl', `${id}.jsonl.draft.tmp`, '.DS_Store', 'job_.jsonl'])
      writeFileSync(join(state, 'jobs', odd), '');
    expect(await ledger.ids()).toEqual([newer, id]);
  });
});

describe('a folder that cannot be used', () => {
  it.each([
    ['a file', (path: string) => writeFileSync(path, '')],
    ['a link to nowhere', (path: string) => symlinkSync('/nowhere/at/all', path)],
  ])('%s: exit 10, naming it', async (_, put) => {
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
  for (let count = 0; count < 200; count += 1) {
    await ledger.append(id, { type: 'observed', state: 'running', native_status: name + '.' + count + 'x'.repeat(count * 8) });
    if (count % 10 === 0 && (await ledger.claim('claim.' + count, name)) === undefined) won.push(count);
  }
  console.log(JSON.stringify(won));
`;

it('eight processes with 200 appends each lose nothing, and each claim has one winner', async () => {
  const { state, id, path, ledger } = await made(accepted);
  const folder = freshFolder();
  await build({
    input: 'src/ledger/file-ledger.ts',
    platform: 'node',
    output: { file: join(folder, 'ledger.mjs'), format: 'esm' },
    logLevel: 'silent',
  });
  writeFileSync(join(folder, 'program.mjs'), PROGRAM);
  const names = Array.from({ length: 8 }, (_, index) => `p${index}`);
  const won = await Promise.all(
    names.map(async (name) => {
      const run = await promisify(execFile)(process.execPath, [join(folder, 'program.mjs'), state, id, name]);
      return JSON.parse(run.stdout) as number[];
    }),
  );
  const events = decodeEvents(readFileSync(path, 'utf8'));
  const seen = events.flatMap((event) => (event?.type === 'observed' ? [event.native_status] : []));
  const written = names.flatMap((name) =>
    Array.from({ length: 200 }, (_, count) => `${name}.${count}${'x'.repeat(count * 8)}`),
  );
  expect(seen.sort()).toEqual(written.sort());
  expect(events).toHaveLength(1602);
  expect((await ledger.read(id))?.record.damaged).toBe(0);
  expect(won.flat().sort((one, other) => one - other)).toEqual(
    Array.from({ length: 20 }, (_, index) => index * 10),
  );
});

// A file system of its own, so small that it fills up in the middle of a line.
const canMount = process.platform === 'linux' && process.getuid?.() === 0;
it.skipIf(!canMount)(
  'a disk that fills up costs the last line only, and goes on once there is room',
  async () => {
    const disk = mkdtempSync(join(tmpdir(), 'mgw-small-'));
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', disk]).status === 0;
    onEnd(() => {
      if (mounted) spawnSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true, force: true });
    });
    if (!mounted) return;
    const ledger = await openFileLedger(join(disk, 'state'), () => now);
    const id = newJobId(now);
    await ledger.create(id, [prepared, accepted]);
    writeFileSync(join(disk, 'filler'), 'x'.repeat(30_000));
    const observed = (count: number): JobEvent => ({
      type: 'observed',
      state: 'running',
      native_status: `${count} ${'y'.repeat(150)}`,
    });
    let count = 0;
    const fill = async (): Promise<void> => {
      for (;;) await ledger.append(id, observed((count += 1)));
    };
    await expect(fill()).rejects.toMatchObject({ code: 'local_io', exitCode: 10 });
    expect(await ledger.read(id)).toMatchObject({ handle: 'task_1', record: { damaged: 0 } });
    await expect(ledger.create(newJobId(now + 1), [prepared])).rejects.toMatchObject({ code: 'local_io' });
    expect(await ledger.ids()).toEqual([id]);
    rmSync(join(disk, 'filler'));
    await ledger.append(id, { type: 'finished', state: 'succeeded', native_status: 'ok' });
    expect(await ledger.read(id)).toMatchObject({ state: 'succeeded', record: { damaged: 0 } });
  },
);
