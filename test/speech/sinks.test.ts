import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { FileSink } from '../../src/speech/file-sink.ts';
import { ClosedPipe, StreamSink } from '../../src/speech/sink.ts';
import { wavHeader } from '../../src/speech/containers.ts';
import { freshFolder, names } from './harness.ts';
import { claimantOf, lockAs } from '../support/downloads.ts';
import { readAll } from '../support/read-all.ts';

const pcm = Buffer.from([1, 0, 2, 0, 3, 0]);
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

test('a WAV header contains the length of the audio after it', () => {
  const header = wavHeader(24_000, 6);
  expect(header).toHaveLength(44);
  expect(header.toString('latin1', 0, 4) + header.toString('latin1', 8, 16)).toBe('RIFFWAVEfmt ');
  expect([header.readUInt32LE(4), header.readUInt32LE(40)]).toEqual([42, 6]);
  expect([header.readUInt16LE(20), header.readUInt16LE(22), header.readUInt32LE(24)]).toEqual([1, 1, 24_000]);
  expect([header.readUInt32LE(28), header.readUInt16LE(32), header.readUInt16LE(34)]).toEqual([
    48_000, 2, 16,
  ]);
  expect([wavHeader(8000).readUInt32LE(4), wavHeader(8000).readUInt32LE(40)]).toEqual([
    2 ** 32 - 1,
    2 ** 32 - 1,
  ]);
  expect(wavHeader(8000, 2 ** 33).readUInt32LE(40)).toBe(2 ** 32 - 1);
});

describe('a speech file', () => {
  const sink = async (target: string, wavRate?: number): Promise<FileSink> => {
    const made = new FileSink({ target, force: false, mime: 'audio/x', wavRate });
    made.lock = await lockAs(claimantOf(1), target, 'speech');
    return made;
  };

  test('names the folder of its temporary file, not its output, if a file has the name of that folder', async () => {
    const target = join(freshFolder(), 'a.mp3');
    writeFileSync(`${target}.pieces`, '');
    const part = join(`${target}.pieces`, 'joined.part');
    const opening = new FileSink({ target, force: false, mime: 'audio/x', part }).open();
    const message = `Cannot write ${target}.pieces: a file with this name already exists.`;
    await expect(opening).rejects.toMatchObject({ message, charged: 'no', exitCode: 10 });
  });

  test('has one WAV header with the real sizes, and is published with the hash of the whole file', async () => {
    const target = join(freshFolder(), 'a.wav');
    const file = await sink(target, 16_000);
    await file.open();
    await file.write(pcm.subarray(0, 2));
    await file.write(pcm.subarray(2));
    const published = await file.publish(await file.complete());
    const expected = Buffer.concat([wavHeader(16_000, 6), pcm]);
    expect(readFileSync(target)).toEqual(expected);
    expect(published).toEqual({ path: target, bytes: 50, sha256: sha256(expected), mime: 'audio/x' });
  });

  test('leaves a playable temporary file if it is abandoned, or no file if there is no audio', async () => {
    const folder = freshFolder();
    const file = await sink(join(folder, 'a.wav'), 16_000);
    await file.open();
    await file.write(pcm);
    expect(await file.abandon()).toBe(join(folder, 'a.wav.part'));
    expect(readFileSync(join(folder, 'a.wav.part'))).toEqual(Buffer.concat([wavHeader(16_000, 6), pcm]));
    const empty = await sink(join(folder, 'b.wav'), 16_000);
    await empty.open();
    expect(await empty.abandon()).toBeUndefined();
    for (const { lock } of [file, empty]) lock?.release();
    expect(names(folder)).toEqual(['a.wav.part']);
  });

  test('is padded if its PCM has an odd number of bytes', async () => {
    const target = join(freshFolder(), 'a.wav');
    const file = await sink(target, 8000);
    await file.open();
    await file.write(pcm.subarray(0, 3));
    await file.publish(await file.complete());
    expect(readFileSync(target)).toEqual(Buffer.concat([wavHeader(8000, 4), Buffer.from([1, 0, 2, 0])]));
  });

  test.each([
    ['a folder', (path: string) => mkdirSync(path)],
    ['a file', (path: string) => writeFileSync(path, '')],
    ['a link', (path: string) => symlinkSync('/nowhere', path)],
  ])('does not replace %s', async (_, make) => {
    const target = join(freshFolder(), 'a.mp3');
    make(target);
    await expect((await sink(target)).open()).rejects.toMatchObject({ exitCode: 10, charged: 'no' });
  });

  test('is refused before anything is paid for if its folder is missing', async () => {
    const target = join(freshFolder(), 'no', 'a.mp3');
    const opened = new FileSink({ target, force: false, mime: 'audio/x' }).open();
    await expect(opened).rejects.toMatchObject({ code: 'local_io', charged: 'no' });
  });
});

describe('an output stream that receives speech', () => {
  test('receives each piece immediately, after one WAV header with an unknown length', async () => {
    const stream = new PassThrough();
    const sink = new StreamSink(stream, 24_000);
    await sink.write(pcm.subarray(0, 2));
    expect(readAll(stream)).toEqual(Buffer.concat([wavHeader(24_000), pcm.subarray(0, 2)]));
    await sink.write(pcm.subarray(2));
    expect(stream.read()).toEqual(pcm.subarray(2));
  });

  test('ends without an error message if its reader closes it', async () => {
    const write: Writable['_write'] = (_, __, done) =>
      done(Object.assign(new Error('EPIPE'), { code: 'EPIPE' }));
    const stream = new Writable({ write }).on('error', () => undefined);
    await expect(new StreamSink(stream).write(pcm)).rejects.toBeInstanceOf(ClosedPipe);
  });

  test('causes a local I/O error if a write fails for any other reason', async () => {
    const write: Writable['_write'] = (_, __, done) =>
      done(Object.assign(new Error('full'), { code: 'ENOSPC' }));
    const stream = new Writable({ write }).on('error', () => undefined);
    await expect(new StreamSink(stream).write(pcm)).rejects.toMatchObject({
      code: 'local_io',
      charged: 'yes',
    });
  });

  test('receives the complete audio of an earlier run', async () => {
    const folder = freshFolder();
    const path = join(folder, 'a.mp3');
    writeFileSync(path, pcm);
    const stream = new PassThrough();
    const missingPiece = { path: join(folder, 'gone'), bytes: 6, sha256: sha256(pcm) };
    expect(await new StreamSink(stream).recover([missingPiece, { ...missingPiece, path }])).toEqual({});
    expect(stream.read()).toEqual(pcm);
    expect(await new StreamSink(stream).recover([missingPiece])).toBeUndefined();
  });
});
