import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { MgwError } from '../../src/errors.ts';
import { fetch } from '../../src/flows/fetch.ts';
import { speak, speakInPieces, type SpeechSubmission, withObjects } from '../../src/flows/speak.ts';
import type { Job } from '../../src/job.ts';
import { stdoutText } from '../../src/jobs/mark.ts';
import { createClient } from '../../src/http/client.ts';
import type { SpeechFormat } from '../../src/speech/compose.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { key } from '../jobs/harness.ts';
import { end } from '../speech/frames.ts';
import type { AudioSink, RecoveredAudio, SavedAudio } from '../../src/speech/sink.ts';
import { speechServer, type SpeechServer } from '../speech/harness.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/servers.ts';
import { flowDeps } from './flow-deps.ts';

const audio = Buffer.from('audio');
const format: SpeechFormat = { name: 'mp3', wire: 'mp3', mime: 'audio/mpeg', wav: false };
const bodyOf = (text: string): { req_params: object } => ({
  req_params: { text, audio_params: { format: 'mp3' } },
});
const composed = { body: bodyOf('Hello.'), format, sampleRate: 24000 } as Parameters<typeof speak>[0];
const wish = (more: Partial<SpeechSubmission>): SpeechSubmission => ({
  ...{ output: '/nowhere', force: false, sidecar: false, fresh: false },
  ...{ deadline: { remainingMs: () => Infinity }, ...more },
});

interface Scene {
  server: SpeechServer;
  deps: Awaited<ReturnType<typeof flowDeps>>;
  folder: string;
  puts: string[];
  /** The content of each uploaded object. */
  stored: Buffer[];
  /** The local paths from which the objects were uploaded. */
  sources: string[];
}

async function scene(): Promise<Scene> {
  const [server, folder, puts] = [await speechServer([audio, end]), freshFolder(), [] as string[]];
  const [stored, sources] = [[] as Buffer[], [] as string[]];
  const client = createClient({ baseUrl: new URL(server.url), key, userAgent: 'test' });
  onEnd(() => client.close());
  const store: Partial<ObjectStore> = {
    checkFree: () => Promise.resolve(),
    has: (url) => Promise.resolve(puts.includes(url)),
    put: (url, { path }) => {
      puts.push(url);
      stored.push(readFileSync(path));
      sources.push(path);
      return Promise.resolve();
    },
  };
  const objects = (): Promise<ObjectStore> => Promise.resolve(store as ObjectStore);
  const deps = await flowDeps(join(folder, 'state'), { client, objects, clock: systemClock });
  return { server, deps, folder, puts, stored, sources };
}

describe('speech', () => {
  it('cannot have a sidecar if it is saved as an object, and the error is reported before payment', async () => {
    const { server, deps } = await scene();
    const request = wish({ output: 's3://m/a.mp3', sidecar: true });
    await expect(speak(composed, request, deps)).rejects.toMatchObject({ code: 'usage' });
    expect(server.requests).toEqual([]);
  });

  it("is uploaded once, under its job's id, and leaves no file", async () => {
    const { server, deps, puts, stored } = await scene();
    const request = wish({ output: 's3://m/{id}.mp3' });
    for (let run = 1; run <= 2; run += 1) {
      const done = await speak(composed, request, deps);
      const url = `s3://m/${done.job.id}.mp3`;
      expect([done.files.map(({ path }) => path), done.isResumed]).toEqual([[url], run > 1]);
      expect(done.job.files.map(({ path }) => path)).toContain(url);
      expect([puts, readdirSync(deps.uploadFolder)]).toEqual([[url], []]);
    }
    expect(server.requests).toHaveLength(1);
    expect(stored).toEqual([audio]);
  });

  it('is uploaded from the same file after a failed upload, and leaves no file of an interrupted upload', async () => {
    const { deps, puts, sources } = await scene();
    const request = wish({ output: 's3://m/a.mp3' });
    const failing: Partial<ObjectStore> = {
      checkFree: () => Promise.resolve(),
      put: (_url, { path }) => {
        sources.push(path);
        return Promise.reject(new Error('the store is full'));
      },
    };
    const objects = (): Promise<ObjectStore> => Promise.resolve(failing as ObjectStore);
    await expect(speak(composed, request, { ...deps, objects })).rejects.toThrow('full');
    await speak(composed, request, deps);
    const [source = ''] = sources;
    expect([sources, puts]).toEqual([[source, source], ['s3://m/a.mp3']]);
    writeFileSync(source, audio);
    await speak(composed, request, deps);
    expect([puts.length, readdirSync(deps.uploadFolder)]).toEqual([1, []]);
  });

  it('leaves no file if jobs fetch uploads it after the upload of mgw tts failed', async () => {
    const { deps, puts } = await scene();
    const store = await deps.objects();
    const put: ObjectStore['put'] = () => Promise.reject(new MgwError('store', 'the store is full'));
    const failing = { ...deps, objects: () => Promise.resolve({ ...store, put }) };
    const error: unknown = await speak(composed, wish({ output: 's3://m/a.mp3' }), failing).catch(
      (reason: unknown) => reason,
    );
    const { job, next = [] } = error as MgwError & { job: Job };
    const url = next.at(-1) ?? '';
    const target = { kind: 'file', path: url } as const;
    const { deadline } = wish({});
    const done = await fetch({ job, target, place: target }, { force: false, deadline }, deps);
    expect([puts, readdirSync(deps.uploadFolder)]).toEqual([['s3://m/a.mp3'], []]);
    expect(done.job.files.map(({ path }) => path)).toEqual([url]);
  });

  it('is kept in a separate file for each key and each second take if its upload fails', async () => {
    const { deps } = await scene();
    const kept = new Set<string>();
    const failing: Partial<ObjectStore> = {
      checkFree: () => Promise.resolve(),
      put: (_url, { path }) => Promise.reject(new Error(`the store is full: ${kept.add(path).size}`)),
    };
    const objects = (): Promise<ObjectStore> => Promise.resolve(failing as ObjectStore);
    for (const [index, more] of [
      { key: 'one' },
      { key: 'two' },
      { fresh: true },
      { fresh: true },
    ].entries()) {
      const request = wish({ output: 's3://m/a.mp3', ...more });
      await expect(speak(composed, request, { ...deps, objects })).rejects.toThrow(`full: ${index + 1}`);
    }
    for (const path of kept) expect(readFileSync(path)).toEqual(audio);
  });

  it('has one header with its sample rate in a file, a stream and an object if it is saved as WAV', async () => {
    const { deps, folder, stored } = await scene();
    const wav = { ...composed, format: { ...format, wav: true, mime: 'audio/wav' }, sampleRate: 16000 };
    const output = new PassThrough();
    const path = join(folder, 'a.wav');
    const fresh = { fresh: true };
    await speak(wav, wish({ ...fresh, output: 's3://m/a.wav' }), deps);
    await speak(wav, wish({ ...fresh, output: path }), deps);
    await speak(wav, wish({ ...fresh, output }), deps);
    for (const bytes of [stored[0], readFileSync(path), output.read() as Buffer]) {
      expect(bytes?.subarray(44, 44 + audio.length)).toEqual(audio);
      expect([bytes?.toString('latin1', 0, 4), bytes?.readUInt32LE(24)]).toEqual(['RIFF', 16000]);
    }
  });

  it('is not copied from an earlier job without a WAV header if WAV is requested, even if the request is the same', async () => {
    const { server, deps, folder } = await scene();
    const request = wish({ output: join(folder, 'a') });
    await speak(composed, request, deps);
    const wav = { ...composed, variant: 'wav', format: { ...format, wav: true, mime: 'audio/wav' } };
    await expect(speak(wav, request, deps)).rejects.toMatchObject({ code: 'output_exists' });
    expect(await speak(composed, request, deps)).toMatchObject({ isResumed: true });
    expect(server.requests).toHaveLength(1);
  });

  it('is not marked if it is not MP3, and a note reports this for a file and for an object', async () => {
    const { deps, folder } = await scene();
    const noteCounts: number[] = [];
    for (const [output, mark] of [
      [join(folder, 'a.mp3'), true],
      ['s3://m/a.mp3', true],
      ['s3://m/b.mp3', false],
      [join(folder, 'b.mp3'), false],
    ] as const) {
      await speak(composed, wish({ fresh: true, output, mark }), deps);
      noteCounts.push(deps.notes.filter((note) => note.includes('not marked')).length);
    }
    expect(noteCounts).toEqual([1, 2, 2, 2]);
  });

  it('is saved to a file with a sidecar, whose path must be free', async () => {
    const { server, deps, folder } = await scene();
    const output = join(folder, 'a.mp3');
    const done = await speak(composed, wish({ output, sidecar: true }), deps);
    expect([done.files.map(({ path }) => path), existsSync(`${output}.json`)]).toEqual([[output], true]);
    const again = wish({ output: join(folder, 'b.mp3'), sidecar: true, fresh: true });
    writeFileSync(join(folder, 'b.mp3.json'), 'mine');
    await expect(speak(composed, again, deps)).rejects.toMatchObject({ code: 'output_exists' });
    expect(server.requests).toHaveLength(1);
    await speak(composed, { ...again, sidecar: false }, deps);
    expect(readFileSync(join(folder, 'b.mp3.json'), 'utf8')).toBe('mine');
  });

  it('is written to a stream, with a note that the stream cannot be marked', async () => {
    const { deps } = await scene();
    const output = new PassThrough();
    const done = await speak(composed, wish({ output, mark: true }), deps);
    expect([output.read(), done.files]).toEqual([audio, []]);
    await speak(composed, wish({ output, fresh: true }), deps);
    expect(deps.notes.filter((note) => note === stdoutText)).toHaveLength(1);
  });

  const piecesIn = (stateDir: string): Parameters<typeof speakInPieces>[0] => ({
    ...{ format, sampleRate: 24000, concurrency: 2, stateDir, joiner: (piece: Uint8Array) => piece },
    bodies: [bodyOf('One.'), bodyOf('Two.')] as Parameters<typeof speakInPieces>[0]['bodies'],
  });

  it('is one file, so {n} in its output is 1', async () => {
    const { deps, folder } = await scene();
    const done = await speak(composed, wish({ output: join(folder, 'a{n}.mp3') }), deps);
    const object = await speak(composed, wish({ output: 's3://m/b{n}.mp3', key: 'k' }), deps);
    const split = await speakInPieces(piecesIn(folder), wish({ output: join(folder, 'c{n}.mp3') }), deps);
    expect([...done.files, ...object.files, split.file].map((file) => file?.path)).toEqual([
      join(folder, 'a1.mp3'),
      's3://m/b1.mp3',
      join(folder, 'c1.mp3'),
    ]);
  });

  it('is kept next to its output file until all pieces are complete if it is split for a file', async () => {
    const { deps, folder } = await scene();
    const output = join(folder, 'a.mp3');
    const kept: string[][] = [];
    const onPiece = (): void => void kept.push(readdirSync(`${output}.pieces`));
    await speakInPieces({ ...piecesIn(join(folder, 'state')), onPiece }, wish({ output }), deps);
    expect(kept).toHaveLength(2);
    expect([existsSync(`${output}.pieces`), readFileSync(output)]).toEqual([
      false,
      Buffer.concat([audio, audio]),
    ]);
  });

  it('is kept in the state folder, in a folder named after its text, if it is split for a stream', async () => {
    const { server, deps, folder } = await scene();
    const output = new PassThrough();
    const stateDir = join(folder, 'state');
    const speech = await speakInPieces(piecesIn(stateDir), wish({ output }), deps);
    expect([output.read(), speech.jobs.length]).toEqual([Buffer.concat([audio, audio]), 2]);
    const [name = ''] = readdirSync(join(stateDir, 'speech'));
    expect(name).toMatch(/^[\da-f]{32}\./);
    expect(server.requests).toHaveLength(2);
  });
});

it('saved audio that must not be read is not recovered, and its refusal is reported only if no other audio is', async () => {
  const refusal = new MgwError('usage', 'outside');
  const checkFile = (path: string): Promise<void> =>
    path === '/theirs' ? Promise.reject(refusal) : Promise.resolve();
  const deps = await flowDeps(freshFolder(), { checkFile });
  const [own, theirs] = ['/own', '/theirs'].map((path) => ({ path }) as SavedAudio);
  const recover = ([first]: readonly SavedAudio[]): Promise<RecoveredAudio | undefined> =>
    Promise.resolve(first && { file: first });
  const sink = withObjects({ recover } as AudioSink, deps, { remainingMs: () => Infinity });
  await expect(sink.recover([theirs, own] as SavedAudio[])).resolves.toEqual({ file: own });
  await expect(sink.recover([theirs] as SavedAudio[])).rejects.toBe(refusal);
});
