import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { inlineMedia, kindOf, type InlineHooks } from '../../src/jobs/inline-media.ts';
import { fakeMp4 } from '../support/gateway-c.ts';

let folder: string;
let told: string[];
let hooks: InlineHooks;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-inline-'));
  told = [];
  hooks = {
    before: () => {
      told.push('before');
      return Promise.resolve();
    },
    onBytes: (bytes) => told.push(String(bytes)),
  };
});

async function filled(media: ReturnType<typeof inlineMedia>, index: number, text: string): Promise<string> {
  const sink = await media.openSink(index);
  for (const chunk of text) await sink.write(Buffer.from(chunk));
  await sink.close();
  return sink.path ?? '';
}

describe('a sink', () => {
  it('makes a file with its size and hash, and tells how much has come', async () => {
    const media = inlineMedia(join(folder, 'out.mp4'), 'job_1', hooks);
    const path = await filled(media, 0, 'abc');
    expect(media.file(0)).toEqual({
      path,
      bytes: 3,
      sha256: createHash('sha256').update('abc').digest('hex'),
    });
    expect(readFileSync(path).toString()).toBe('abc');
    expect(told).toEqual(['before', '1', '2', '3']);
    await media.discard();
    expect(readdirSync(folder)).toEqual([]);
  });

  it('has no file before it was closed, nor while a later poll writes it again', async () => {
    const media = inlineMedia(join(folder, 'out.mp4'), 'job_1', hooks);
    await filled(media, 0, 'first');
    const again = await media.openSink(0);
    expect(media.file(0)).toBeUndefined();
    await again.write(Buffer.from('second'));
    await again.close();
    expect(readFileSync(media.file(0)?.path ?? '').toString()).toBe('second');
  });

  it('has the same name in a rerun, another for another target, and a short one for a long target', async () => {
    const name = async (target: string): Promise<string> => {
      const media = inlineMedia(join(folder, target), 'job_1', hooks);
      return filled(media, 0, 'x');
    };
    expect(await name('out.mp4')).toBe(await name('out.mp4'));
    expect(await name('out.mp4')).not.toBe(await name('other.mp4'));
    expect((await name(`${'x'.repeat(250)}.mp4`)).length).toBeLessThan(folder.length + 60);
  });

  it('does not write through a link that lies in its way', async () => {
    const media = inlineMedia(join(folder, 'out.mp4'), 'job_1', hooks);
    const path = await filled(media, 0, 'x');
    rmSync(path);
    writeFileSync(join(folder, 'victim'), 'mine');
    symlinkSync(join(folder, 'victim'), path);
    await filled(media, 0, 'new');
    expect(readFileSync(join(folder, 'victim')).toString()).toBe('mine');
  });

  it('says exit 10 where the folder is gone', async () => {
    const media = inlineMedia(join(folder, 'none', 'out.mp4'), 'job_1', hooks);
    await expect(media.openSink(0)).rejects.toMatchObject({ code: 'local_io', exitCode: 10, charged: 'yes' });
  });
});

describe('kindOf', () => {
  it.each<[string, Buffer, object]>([
    ['an MP4', fakeMp4(), { mime: 'video/mp4' }],
    ['an MP4 that is cut', fakeMp4().subarray(0, -1), { flaw: expect.stringContaining('broken') as string }],
    [
      'the brand of an MP4 alone',
      fakeMp4().subarray(0, 24),
      { flaw: expect.stringContaining('nothing to play') as string },
    ],
    ['JSON', Buffer.from('{"error":{}}'), { flaw: 'a text and not a video' }],
    ['HTML', Buffer.from('<!doctype html>'), { flaw: 'a text and not a video' }],
    ['another kind of media', Buffer.from('1a45dfa3a34286810142f7', 'hex'), {}],
  ])('%s', async (_, bytes, kind) => {
    const path = join(folder, 'file');
    writeFileSync(path, bytes);
    expect(await kindOf(path)).toEqual(kind);
  });
});
