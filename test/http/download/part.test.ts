import { execFileSync } from 'node:child_process';
import type * as FileSystem from 'node:fs';
import { chmod, link, mkdir, open, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readClaimLog } from '../../../src/files/claim-log.ts';
import type { DownloadOutcome } from '../../../src/http/download.ts';
import { publish } from '../../../src/files/publish.ts';
import { claimantOf, expectWhole, file, inTurn, useDownloads } from '../../support/downloads.ts';
import { film } from '../../support/film.ts';
import { head, say, type RawServer } from '../../support/raw-server.ts';

const size = 80_000;
const half = size / 2;
const content = film(size);
const etag = '"one"';
const ctx = useDownloads();

const disk = vi.hoisted(() => ({
  /** Returns the bytes to write in place of a write's first chunk. */
  change: undefined as ((chunk: Buffer, at: number) => Buffer) | undefined,
  syncs: true,
}));
afterEach(() => Object.assign(disk, { change: undefined, syncs: true }));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof FileSystem>();
  const writevSync = (file: number, [first = Buffer.alloc(0)]: Buffer[], at: number): number => {
    const chunk = disk.change?.(first, at) ?? first;
    return real.writeSync(file, chunk, 0, chunk.length, at);
  };
  const done = (act: () => unknown, callback: (error: unknown, result?: unknown) => void): void =>
    void Promise.resolve()
      .then(act)
      .then((result) => callback(null, result), callback);
  return {
    ...real,
    writevSync,
    writev: (file: number, chunks: Buffer[], at: number, callback: () => void) =>
      done(() => writevSync(file, chunks, at), callback),
    fsync: (file: number, callback: () => void) =>
      done(() => {
        if (!disk.syncs) throw Object.assign(new Error('io'), { code: 'EIO' });
        real.fsyncSync(file);
      }, callback),
  };
});

/** Leaves half of the file, as if the process `pid` had died during the download. Returns the server. */
async function leaveHalf(pid: number, etags = { etag }): Promise<RawServer> {
  const server = await ctx.start(
    inTurn(file({ content, ...etags, cutAt: half }), file({ content, ...etags })),
  );
  const stuck = { retries: -1, claimant: claimantOf(pid) };
  await expect(ctx.fetch(server.url('/a?sign=SECRET'), stuck)).rejects.toThrow();
  await writeFile(log(), (await readFile(log(), 'utf8')).replace('{"released":true}', ''));
  return server;
}

function log(): string {
  return `${ctx.part}.json`;
}

function partOf(outcome: DownloadOutcome): string {
  return outcome.kind === 'done' ? outcome.file.path : '';
}

describe("a dead process's temporary file", () => {
  it('is continued', async () => {
    const server = await leaveHalf(7);
    await expectWhole(await ctx.fetch(server.url(), { claimant: claimantOf(8) }), content);
    expect(server.header('range')).toEqual(['', `bytes=${half}-`]);
  });

  it('is continued from a new URL', async () => {
    await leaveHalf(7);
    const server = await ctx.start(file({ content, etag }));
    await expectWhole(await ctx.fetch(server.url('/a?sign=OTHER')), content);
    expect(server.header('range')).toEqual([`bytes=${half}-`]);
  });

  it('is not continued for a different file', async () => {
    const server = await leaveHalf(7);
    await expectWhole(await ctx.fetch(server.url(), {}, { identity: 'job 1' }), content);
    expect(server.header('range')).toEqual(['', '']);
  });

  it('is continued after its durable bytes, and all other bytes are discarded', async () => {
    const server = await leaveHalf(7);
    const part = await open(ctx.part, 'a');
    await part.write(Buffer.alloc(200_000));
    await part.close();
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('is continued at its end if its metadata specifies more bytes', async () => {
    const server = await leaveHalf(7);
    await truncate(ctx.part, 1000);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', 'bytes=1000-']);
  });

  it('is not continued if its metadata is damaged', async () => {
    const server = await leaveHalf(7);
    await writeFile(log(), '{"version":1,"durable":');
    const outcome = await ctx.fetch(server.url());
    await expectWhole(outcome, content);
    expect(partOf(outcome)).not.toBe(ctx.part);
    expect(server.header('range')).toEqual(['', '']);
  });

  it('causes no crash and no wrong file, regardless of its metadata', async () => {
    await leaveHalf(7);
    const notes = await readFile(log(), 'utf8');
    const change = fc.record({ at: fc.nat(notes.length - 1), byte: fc.nat(255), cut: fc.boolean() });
    const server = await ctx.start(file({ content, etag }));
    await fc.assert(
      fc.asyncProperty(change, async ({ at, byte, cut }) => {
        const bytes = Buffer.from(cut ? notes.slice(0, at) : notes);
        if (!cut) bytes[at] = byte;
        await writeFile(ctx.part, content.subarray(0, half));
        await writeFile(log(), bytes);
        const outcome = await ctx.fetch(server.url());
        await expectWhole(outcome, content);
        await rm(partOf(outcome), { force: true });
      }),
      { numRuns: 30, examples: [[{ at: notes.lastIndexOf(etag.slice(1, -1)), byte: 127, cut: false }]] },
    );
  });

  it('has metadata that contains no URL and can be read only by its owner', async () => {
    await leaveHalf(7);
    const notes = await readFile(log(), 'utf8');
    expect(notes).not.toMatch(/SECRET|127\.0\.0\.1|sign/);
    expect((await stat(log())).mode & 0o777).toBe(0o600);
  });
});

describe('a temporary file that may still be open elsewhere', () => {
  it('is not used, and the download continues in a second file', async () => {
    await leaveHalf(7);
    const unseen = claimantOf(8, [], [7]);
    const server = await ctx.start(inTurn(file({ content, etag, cutAt: half }), file({ content, etag })));
    await expect(ctx.fetch(server.url(), { retries: -1, claimant: unseen })).rejects.toThrow();
    await expectWhole(await ctx.fetch(server.url(), { claimant: unseen }), content);
    expect(server.header('range')).toEqual(['', `bytes=${half}-`]);
  });

  it('is separate for each process if the processes cannot see each other', async () => {
    await leaveHalf(7);
    const server = await ctx.start(file({ content, etag }));
    const pids = Array.from({ length: 6 }, (_, at) => 100 + at);
    const outcomes = await Promise.all(
      pids.map((pid) => ctx.fetch(server.url(), { claimant: claimantOf(pid, [], [7, ...pids]) })),
    );
    for (const outcome of outcomes) await expectWhole(outcome, content);
    expect(new Set(outcomes.map(partOf)).size).toBe(pids.length);
    const files = outcomes.flatMap((outcome) => (outcome.kind === 'done' ? outcome.file : []));
    await Promise.all(files.map((each) => publish(each, ctx.target, { force: false })));
    expect((await readFile(ctx.target)).equals(content)).toBe(true);
  });
});

describe("a file that is not mgw's", () => {
  it.each([
    ["a file with the metadata file's name", () => writeFile(log(), '{"mine":1}')],
    ['a folder', () => mkdir(log())],
    ['a FIFO', () => Promise.resolve(execFileSync('mkfifo', [log()]))],
  ])('is not changed: %s', async (_, make) => {
    await make();
    const server = await ctx.start(file({ content, etag }));
    await expectWhole(await ctx.fetch(server.url()), content);
    const standing = await stat(log());
    if (standing.isFile()) expect(await readFile(log(), 'utf8')).toBe('{"mine":1}');
  });

  it('is not changed, even if it is an output that has a second name after a crash', async () => {
    const server = await leaveHalf(7);
    await link(ctx.part, ctx.target);
    const before = await readFile(ctx.target);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect((await readFile(ctx.target)).equals(before)).toBe(true);
  });

  it.each([
    ['the temporary file', () => ctx.part],
    ['its metadata file', () => log()],
  ])('is not written to through a link in place of %s', async (_, place) => {
    const victim = join(ctx.folder, 'victim');
    await writeFile(victim, 'mine');
    const server = await leaveHalf(7);
    await rm(place());
    await symlink(victim, place());
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(await readFile(victim, 'utf8')).toBe('mine');
  });
});

describe('writing a download to disk', () => {
  const local = { code: 'local_io', exitCode: 10, charged: 'yes', retry: 'resume' };

  it('fails with exit code 10 before any request if the output folder is missing', async () => {
    const server = await ctx.start(file({ content }));
    ctx.target = join(ctx.folder, 'none', 'film.mp4');
    await expect(ctx.fetch(server.url())).rejects.toMatchObject(local);
    expect(server.requests).toEqual([]);
  });

  it('fails with exit code 10 if the disk fills up, and the kept temporary file is continued later', async () => {
    const server = await ctx.start(file({ content, etag }));
    disk.change = (chunk, at) => {
      if (at > 0) throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
      return chunk.subarray(0, 5000);
    };
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({
      ...local,
      message: expect.stringContaining('disk is full') as string,
    });
    disk.change = undefined;
    expect((await readFile(ctx.part)).equals(content.subarray(0, 5000))).toBe(true);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', 'bytes=5000-']);
  });

  it('writes the remaining bytes in a second write if the first write is incomplete', async () => {
    const server = await ctx.start(file({ content, etag }));
    disk.change = (chunk) => chunk.subarray(0, 7777);
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('fails with exit code 10 if the file cannot be synced', async () => {
    const server = await ctx.start(file({ content, etag }));
    disk.syncs = false;
    await expect(ctx.fetch(server.url())).rejects.toMatchObject(local);
  });

  it.runIf(process.getuid?.() !== 0)('fails with exit code 10 if the folder is not writable', async () => {
    await chmod(ctx.folder, 0o500);
    const server = await ctx.start(file({ content }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject(local);
    await chmod(ctx.folder, 0o700);
  });
});

describe('a temporary file during a download', () => {
  it('is kept if text arrives instead of the file', async () => {
    const server = await leaveHalf(7);
    const words = await ctx.start((_, socket) =>
      say(socket, '200 OK', { 'content-type': 'text/html' }, '<html>'),
    );
    await expect(ctx.fetch(words.url())).rejects.toMatchObject({ code: 'result_corrupt' });
    expect((await readFile(ctx.part)).equals(content.subarray(0, half))).toBe(true);
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('is synced regularly, so a machine crash loses little', async () => {
    const big = film(1_500_000);
    const server = await ctx.start((_, socket) => {
      socket.write(head('200 OK', { etag, 'content-length': big.length }));
      socket.write(big.subarray(0, 1_400_000));
    });
    const stop = new AbortController();
    const fetching = ctx.fetch(server.url(), {
      signal: stop.signal,
      onProgress: () => ctx.clock.advance(2000),
    });
    await expect.poll(async () => durable()).toBeGreaterThan(0);
    stop.abort('SIGKILL');
    await expect(fetching).rejects.toBe('SIGKILL');
  });

  async function durable(): Promise<number> {
    return readClaimLog(await readFile(log(), 'utf8').catch(() => '')).metadata.durable ?? 0;
  }
});
