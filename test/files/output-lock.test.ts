import { closeSync, existsSync, writeSync } from 'node:fs';
import { appendFile, link, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { isUnclaimed, readClaimLog, testFileOf } from '../../src/files/claim-log.ts';
import { removeLeftovers, type LockOptions, type OutputLock } from '../../src/files/output-lock.ts';
import { claimantOf, useDownloads } from '../support/downloads.ts';

const ctx = useDownloads();

function as(pid: number, ...alive: number[]): Pick<LockOptions, 'claimant'> {
  return { claimant: claimantOf(pid, alive) };
}

/** Writes a `.part` file of ten bytes, records the bytes as durable, and returns the path. */
async function filled(lock: OutputLock): Promise<string> {
  const { path, file } = await lock.openPart();
  writeSync(file, '0123456789');
  closeSync(file);
  await lock.note({ validator: '"one"', durable: 10 });
  return path;
}

/** Opens and closes a lock's `.part` file. Returns the path, and whether the file is new. */
async function opened(lock: OutputLock): Promise<{ path: string; isNew: boolean }> {
  const { path, isNew, file } = await lock.openPart();
  closeSync(file);
  return { path, isNew };
}

describe('an output lock', () => {
  it('is held by one process at a time, and the next process waits', async () => {
    const first = await ctx.lock(as(1));
    const second = ctx.lock(as(2, 1));
    let isHeld = false;
    void second.then(() => (isHeld = true));
    while (ctx.clock.pauses.length < 3) await new Promise((resolve) => setImmediate(resolve));
    expect(isHeld).toBe(false);
    first.release();
    (await second).release();
    expect(await readdir(ctx.folder)).toEqual([]);
  });

  it.each([
    ['the same result', undefined, { bytes: 4, sha256: 'ab' }],
    ['a different result', 'other', undefined],
  ])(
    'passes the published file on to waiting processes only if they make the same result (%s)',
    async (_, of, sealed) => {
      const first = await ctx.lock(as(1), of);
      const others = [2, 3].map(async (pid) => {
        const lock = await ctx.lock(as(pid, 1, 2, 3));
        lock.release();
        return lock.metadata.sealed;
      });
      while (ctx.clock.pauses.length < 3) await new Promise((resolve) => setImmediate(resolve));
      await first.note({ sealed: { bytes: 4, sha256: 'ab' } });
      first.release();
      expect(await Promise.all(others)).toEqual([sealed, sealed]);
      expect(await readdir(ctx.folder)).toEqual([]);
    },
  );

  it('blocks a second process until the deadline or a signal', async () => {
    await ctx.lock(as(1));
    const deadline = deadlineIn(1000, ctx.clock);
    await expect(ctx.lock({ ...as(2, 1), deadline })).rejects.toThrow('late');
    const signal = AbortSignal.abort('SIGINT');
    await expect(ctx.lock({ ...as(2, 1), signal })).rejects.toBe('SIGINT');
  });

  it('is acquired by one process at a time if many processes find its holder dead', async () => {
    await ctx.lock(as(1));
    const pids = Array.from({ length: 12 }, (_, at) => 100 + at);
    let holderCount = 0;
    let max = 0;
    await Promise.all(
      pids.map(async (pid) => {
        const lock = await ctx.lock(as(pid, ...pids));
        max = Math.max(max, (holderCount += 1));
        await new Promise((resolve) => setImmediate(resolve));
        holderCount -= 1;
        lock.release();
      }),
    );
    expect(max).toBe(1);
    expect(await readdir(ctx.folder)).toEqual([]);
  });

  it('requires a new temporary file if its holder lost the lease, because the holder may resume with the old file open', async () => {
    const own = claimantOf(1);
    const first = await ctx.lock({ claimant: { ...own, owner: { ...own.owner, lease: '7' } } });
    const leftover = await filled(first);
    const second = await ctx.lock(as(2));
    const { path, isNew } = await opened(second);
    expect([isNew, path === leftover, second.metadata.durable]).toEqual([true, false, undefined]);
    expect(existsSync(leftover)).toBe(false);
  });

  it('can be acquired after its holder died at any step', async () => {
    const lock = await ctx.lock(as(1));
    await filled(lock);
    closeSync((await lock.createScratch()).file);
    const log = await readFile(`${ctx.part}.json`, 'utf8');
    await fc.assert(
      fc.asyncProperty(fc.nat(log.length), async (length) => {
        await writeFile(`${ctx.part}.json`, log.slice(0, length));
        const next = await ctx.lock(as(2));
        const { file } = await next.openPart();
        closeSync(file);
        next.release();
      }),
      { examples: Array.from({ length: 40 }, (_, at): [number] => [at]), numRuns: 50 },
    );
  });

  it('does not block if its holder cannot be checked, and the next process uses different file names', async () => {
    const path = await filled(await ctx.lock(as(1)));
    const lock = await ctx.lock({ claimant: claimantOf(2, [], [1]) });
    const own = await opened(lock);
    expect(own).toMatchObject({ isNew: true });
    expect(own.path).not.toBe(path);
    expect(await readFile(path, 'utf8')).toBe('0123456789');
  });

  it('can be acquired after its holder has removed it', async () => {
    const first = await ctx.lock(as(1));
    const others = Promise.all(
      [2, 3, 4].map((pid) => ctx.lock(as(pid, 1, 2, 3, 4)).then((lock) => lock.release())),
    );
    first.release();
    await others;
    expect(await readdir(ctx.folder)).toEqual([]);
  });
});

describe('the temporary file of an output', () => {
  it('is kept by a process that fails, and reused by the next process that makes the same file', async () => {
    const first = await ctx.lock(as(1));
    const path = await filled(first);
    first.release();
    const next = await ctx.lock(as(2, 1));
    expect(next.metadata).toMatchObject({ validator: '"one"', durable: 10 });
    expect(await opened(next)).toEqual({ path, isNew: false });
  });

  it('is replaced if it belongs to a different result', async () => {
    await filled(await ctx.lock(as(1)));
    const next = await ctx.lock(as(2), 'job 1');
    expect(await readdir(ctx.folder)).toEqual(['film.mp4.part.json']);
    expect(await opened(next)).toEqual({ path: ctx.part, isNew: true });
  });

  it('is not changed if it was not created under the lock', async () => {
    await writeFile(ctx.part, 'paid for');
    const lock = await ctx.lock(as(1));
    expect((await opened(lock)).path).toMatch(/film\.mp4\.[\da-f]{8}\.part$/);
    expect(await readFile(ctx.part, 'utf8')).toBe('paid for');
  });

  it('gets another name if an unknown file has the recorded name, and the unknown file is not changed', async () => {
    const lock = await ctx.lock(as(1));
    await lock.note({ part: 'film.mp4.part' });
    await writeFile(ctx.part, 'of a browser');
    expect((await opened(await ctx.lock(as(2)))).path).not.toBe(ctx.part);
    expect(await readFile(ctx.part, 'utf8')).toBe('of a browser');
  });

  it.each(['../film.mp4.x.part', 'other.part', '/etc/passwd'])(
    'is never assumed to be %s, even if the log contains that name',
    async (part) => {
      const lock = await ctx.lock(as(1));
      await lock.note({ part, durable: 10 });
      await writeFile(join(ctx.folder, 'other.part'), '0123456789');
      await ctx.lock(as(2), 'job 1');
      expect(await readdir(ctx.folder)).toContain('other.part');
    },
  );

  it('is removed if it has no recorded length and is empty, but kept if it contains data', async () => {
    const first = await ctx.lock(as(1));
    closeSync((await first.openPart()).file);
    const next = await ctx.lock(as(2));
    expect(await opened(next)).toEqual({ path: ctx.part, isNew: true });
    next.release();
    expect(await readdir(ctx.folder)).toEqual([]);
    const last = await ctx.lock(as(3));
    const { file } = await last.openPart();
    writeSync(file, 'paid for');
    closeSync(file);
    last.release();
    expect(await readdir(ctx.folder)).toEqual(['film.mp4.part']);
  });

  it.each(['job 0', 'job 1'])(
    'is removed by the next process if it has become the output (next result: %s)',
    async (identity) => {
      const { path, file } = await (await ctx.lock(as(1))).openPart();
      writeSync(file, '0123456789');
      closeSync(file);
      await link(path, ctx.target);
      await ctx.lock(as(2), identity);
      expect((await readdir(ctx.folder)).sort()).toEqual(['film.mp4', 'film.mp4.part.json']);
    },
  );

  it('may have scratch files, which are removed with the lock or by the next process', async () => {
    const lock = await ctx.lock(as(1));
    const { path, file } = await lock.createScratch();
    closeSync(file);
    expect(await readdir(ctx.folder)).toHaveLength(2);
    const next = await ctx.lock(as(2));
    expect(await readdir(ctx.folder)).toEqual(['film.mp4.part.json']);
    closeSync((await next.createScratch()).file);
    next.release();
    expect(await readdir(ctx.folder)).toEqual([]);
    expect(path).toMatch(/film\.mp4\.[\da-f]{8}\.part$/);
  });
});

describe('removeLeftovers', () => {
  it('removes leftovers of the same result from dead and unknown processes', async () => {
    await filled(await ctx.lock(as(1)));
    await filled(await ctx.lock({ claimant: claimantOf(2, [], [1]) }));
    expect(await readdir(ctx.folder)).toHaveLength(4);
    await removeLeftovers(ctx.target, 'job 0', claimantOf(3, [], [1]));
    expect(await readdir(ctx.folder)).toEqual([]);
  });

  it('removes leftovers of a process killed before its claim or while testing the folder', async () => {
    await writeFile(`${ctx.part}.json`, '');
    await writeFile(testFileOf(ctx.target), '\0');
    await removeLeftovers(ctx.target, 'job 0', claimantOf(3));
    expect(await readdir(ctx.folder)).toEqual([]);
  });

  it.each([
    ['it contains data', 'paid for', []],
    ['its process cannot be checked', '', [1]],
  ])(
    'removes the log of a temporary file without metadata, but keeps the file if %s',
    async (_, text, unseen) => {
      const { file } = await (await ctx.lock(as(1))).openPart();
      writeSync(file, text);
      closeSync(file);
      await removeLeftovers(ctx.target, 'job 0', claimantOf(3, [], unseen));
      expect(await readdir(ctx.folder)).toEqual(['film.mp4.part']);
    },
  );

  it('keeps files that belong to a different result or to a living process', async () => {
    await filled(await ctx.lock(as(1)));
    await removeLeftovers(ctx.target, 'job 1', claimantOf(3));
    await removeLeftovers(ctx.target, 'job 0', claimantOf(3, [1]));
    expect(await readdir(ctx.folder)).toHaveLength(2);
  });
});

describe('a log without a readable claim', () => {
  it('is recognized however often a full disk has truncated a claim', () => {
    const claim = `\n${JSON.stringify({ claim: 'a', after: '', owner: { pid: 1, start: '', host: '' } })}`;
    const torn = fc.nat(claim.length - 2).map((length) => claim.slice(0, length));
    fc.assert(fc.property(fc.array(torn), (claims) => isUnclaimed(claims.join(''))));
  });

  it.each(['text', '{"claim":"a', '\n{"name":"a"}', '\n{"claim":"a"\ntext', '\n{"claim":"a"\n{"name":"a"}'])(
    'belongs to another program if its text is %j',
    (text) => expect(isUnclaimed(text)).toBe(false),
  );
});

describe('readClaimLog', () => {
  const owner = { pid: 1, start: '', host: '' };
  const claim = (name: string, after: string, identity = 'x'): string =>
    JSON.stringify({ claim: name, after, owner, identity });

  it('uses only the first of two claims that follow the same claim', () => {
    const log = readClaimLog([claim('a', ''), claim('b', 'a'), claim('c', 'a')].join('\n'));
    expect(log.latest?.claim).toBe('b');
  });

  it('ignores records of a different result', () => {
    const lines = [claim('a', ''), '{"durable":7,"validator":"v"}', claim('b', 'a', 'y')];
    expect(readClaimLog(lines.join('\n')).metadata).toEqual({ identity: 'y', scratch: [] });
    expect(readClaimLog([...lines.slice(0, 2), claim('b', 'a')].join('\n')).metadata).toMatchObject({
      durable: 7,
    });
  });

  it('returns a result for any input', () => {
    fc.assert(fc.property(fc.string(), (text) => void readClaimLog(text)));
    fc.assert(fc.property(fc.json(), (text) => void readClaimLog(`${claim('a', '')}\n${text}`)));
  });
});

it('a claim log that is too long is not read, and the temporary file gets a different name', async () => {
  const lock = await ctx.lock(as(1));
  lock.release();
  await writeFile(`${ctx.part}.json`, '');
  await truncate(`${ctx.part}.json`, 5 * 1024 * 1024);
  await appendFile(`${ctx.part}.json`, '\n');
  expect((await opened(await ctx.lock(as(2)))).path).not.toBe(ctx.part);
});
