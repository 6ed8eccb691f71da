import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deadlineIn, systemClock } from '../../src/clock.ts';
import { acquireOutputLock, type OutputLock } from '../../src/files/output-lock.ts';
import { inlineMedia, kindOf, type InlineMedia } from '../../src/jobs/inline-media.ts';
import { fakeMp4 } from '../support/film.ts';

let folder: string;
let calls: string[];
let lock: OutputLock;
let media: InlineMedia;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-inline-'));
  calls = [];
  lock = await lockIn(folder);
  media = inlineMedia({
    lock: () => {
      calls.push('lock');
      return Promise.resolve(lock);
    },
    onBytes: (bytes) => calls.push(String(bytes)),
  });
});

// Has no effect if the test has released the lock itself.
afterEach(() => {
  lock.release();
});

function lockIn(place: string): Promise<OutputLock> {
  return acquireOutputLock(join(place, 'out.mp4'), 'job 0', {
    claimant: {
      owner: { pid: process.pid, start: '', host: '' },
      assertLease: () => undefined,
      lifeOf: () => Promise.resolve('dead'),
    },
    clock: systemClock,
    deadline: deadlineIn(1000, systemClock),
    lateError: () => new Error('late'),
    charged: 'yes',
  });
}

async function filled(index: number, text: string): Promise<string> {
  const sink = await media.openSink(index);
  for (const chunk of text) await sink.write(Buffer.from(chunk));
  await sink.close();
  return sink.path ?? '';
}

describe('a media sink', () => {
  it('creates a file with its size and hash, and reports its progress', async () => {
    const path = await filled(0, 'abc');
    expect(media.file(0)).toMatchObject({
      path,
      bytes: 3,
      sha256: createHash('sha256').update('abc').digest('hex'),
    });
    expect(readFileSync(path).toString()).toBe('abc');
    expect(calls).toEqual(['lock', '1', '2', '3']);
    lock.release();
    expect(readdirSync(folder)).toEqual([]);
  });

  it('publishes no file before the sink is closed, or while a later poll writes the media again', async () => {
    const former = await filled(0, 'first');
    const again = await media.openSink(0);
    expect(media.file(0)).toBeUndefined();
    expect(existsSync(former)).toBe(false);
    await again.write(Buffer.from('second'));
    await again.close();
    expect(readFileSync(media.file(0)?.path ?? '').toString()).toBe('second');
    lock.release();
  });

  it('leaves no files except leftovers that a later run removes', async () => {
    await filled(0, 'cut short');
    const next = await lockIn(folder);
    expect(readdirSync(folder)).toEqual(['out.mp4.part.json']);
    next.release();
    lock.release();
  });

  it('reports an error with exit 10 if the folder is missing', async () => {
    rmSync(folder, { recursive: true });
    await expect(media.openSink(0)).rejects.toMatchObject({ code: 'local_io', exitCode: 10, charged: 'yes' });
    lock.release();
  });
});

describe('kindOf', () => {
  it.each<[string, Buffer, object]>([
    ['an MP4', fakeMp4(), { mime: 'video/mp4' }],
    ['a truncated MP4', fakeMp4().subarray(0, -1), { flaw: expect.stringContaining('broken') as string }],
    [
      'an MP4 that ends after its brand',
      fakeMp4().subarray(0, 24),
      { flaw: expect.stringContaining('nothing to play') as string },
    ],
    ['JSON', Buffer.from('{"error":{}}'), { flaw: 'text, not a video' }],
    ['HTML', Buffer.from('<!doctype html>'), { flaw: 'text, not a video' }],
    ['another kind of media', Buffer.from('1a45dfa3a34286810142f7', 'hex'), {}],
  ])('identifies %s', (_, bytes, kind) => {
    const path = join(folder, 'file');
    writeFileSync(path, bytes);
    expect(kindOf(path)).toEqual(kind);
  });
});
