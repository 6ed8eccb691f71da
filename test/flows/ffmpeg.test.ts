import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { checkFfmpeg, encode, probe, takeFrame } from '../../src/flows/ffmpeg.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/servers.ts';

const { signal } = new AbortController();
let folder: string;

beforeEach(() => {
  folder = freshFolder();
  const path = process.env['PATH'];
  process.env['PATH'] = folder;
  onEnd(() => void (process.env['PATH'] = path));
});

/** Installs a program in the only folder on the PATH. */
function install(name: 'ffmpeg' | 'ffprobe', script: string): void {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
}

describe('a command that uses ffmpeg', () => {
  it('exits with 2 and suggests the package to install if ffmpeg is not on the PATH', async () => {
    const missing = { code: 'usage', message: expect.stringContaining('apt install ffmpeg') as string };
    await expect(checkFfmpeg()).rejects.toMatchObject(missing);
    await expect(takeFrame('/a.mp4', 'first', signal)).rejects.toMatchObject(missing);
    await expect(probe('/a.mp4', [], signal)).rejects.toMatchObject(missing);
  });

  it("exits with 2 with ffmpeg's error message if ffmpeg fails", async () => {
    install('ffmpeg', 'echo "  no such codec  " >&2; exit 1');
    await expect(checkFfmpeg()).rejects.toMatchObject({ code: 'usage', message: 'ffmpeg -version failed.' });
    await expect(takeFrame('/a.mp4', 'first', signal)).rejects.toThrow(
      'ffmpeg failed on /a.mp4: no such codec.',
    );
    install('ffmpeg', 'exit 1');
    await expect(encode('/a.mp4', [], signal)).rejects.toThrow('ffmpeg failed on the film: it failed.');
  });

  it('exits with 2 if ffmpeg finds no frame, and searches the last ten seconds a second time for the last frame', async () => {
    install('ffmpeg', `echo "$*" >> ${folder}/calls`);
    await expect(takeFrame('/a.mp4', 'first', signal)).rejects.toThrow('found no frame in /a.mp4');
    install('ffmpeg', 'case "$*" in *"-sseof -10 "*) printf png;; esac');
    expect(Buffer.from(await takeFrame('/a.mp4', 'last', signal)).toString()).toBe('png');
  });

  it('extracts the first frame from the beginning of the video', async () => {
    install('ffmpeg', 'case "$*" in *-sseof*) printf late;; *) printf early;; esac');
    expect(Buffer.from(await takeFrame('/a.mp4', 'first', signal)).toString()).toBe('early');
  });

  it('kills ffmpeg when it is interrupted', async () => {
    install('ffmpeg', 'exec sleep 30');
    const interruption = new AbortController();
    const taking = takeFrame('/a.mp4', 'first', interruption.signal);
    interruption.abort(new Error('interrupted'));
    await expect(taking).rejects.toThrow('interrupted');
  });
});

describe('ffprobe', () => {
  it.each([
    ['no JSON', 'nothing'],
    ['no length', '{"streams":[],"format":{}}'],
    ['the length 0', '{"streams":[],"format":{"duration":"0"}}'],
    ['no streams', '{"format":{"duration":"4"}}'],
  ])('is treated as unable to read the file if it prints %s', async (_, text) => {
    install('ffprobe', `echo '${text}'`);
    await expect(probe('/a.mp4', [], signal)).rejects.toThrow('ffprobe cannot read /a.mp4');
  });

  it('returns the first stream of each kind, and the duration', async () => {
    const streams = ['audio', 'video', 'video'].map((codec_type, index) => ({ codec_type, index }));
    install('ffprobe', `echo '${JSON.stringify({ streams, format: { duration: '4.5' } })}'`);
    expect(await probe('/a.mp4', [], signal)).toEqual({ video: streams[1], audio: streams[0], seconds: 4.5 });
  });
});
