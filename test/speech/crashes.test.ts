import { createHash } from 'node:crypto';
import { closeSync, linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import type { JobEvent } from '../../src/job.ts';
import { type JobDeps, fingerprintOf } from '../../src/jobs/order.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { speechProblem } from '../../src/speech/earlier-run.ts';
import { FileSink, leftoverAt } from '../../src/speech/file-sink.ts';
import { speak, type SpeechResult } from '../../src/speech/speak.ts';
import { claimantOf, lockAs } from '../support/downloads.ts';
import { end } from './frames.ts';
import { depsFor, freshFolder, names, speechServer, type SpeechServer, type TestDeps } from './harness.ts';

const audio = Buffer.from('some audio');
const body = { req_params: { text: 'Hello there.' } };
const sha256 = createHash('sha256').update(audio).digest('hex');
const dead = { pid: 2 ** 22 + 1, start: '1', host: 'elsewhere' };

interface Bench {
  server: SpeechServer;
  folder: string;
  target: string;
  deps: TestDeps;
  run: () => Promise<SpeechResult>;
}

/** Returns a ledger that contains a dead run's events, and a function that repeats the run's command. */
async function after(...events: JobEvent[]): Promise<Bench> {
  const server = await speechServer([audio, end]);
  const folder = freshFolder();
  const target = join(folder, 'a.mp3');
  const deps = await depsFor(server.url, folder);
  const fingerprint = fingerprintOf({ protocol: 'tts', body }, deps.gateway);
  const id = newJobId(Date.now());
  const prepared = { protocol: 'tts', base_url: deps.gateway, fingerprint, account: deps.account } as const;
  await deps.ledger.create(id, [
    { type: 'prepared', ...prepared, request: body },
    { type: 'began', run: 'r1', owner: dead, command: 'submit', ask: 'file', output: target },
    ...events,
  ]);
  const run = (): Promise<SpeechResult> => {
    const sink = new FileSink({ target, force: false, mime: 'audio/mpeg' });
    return speak(
      { body, output: target, fresh: false, deadline: deadlineIn(10_000, deps.clock) },
      deps,
      sink,
    );
  };
  return { server, folder, target, deps, run };
}

const sending: JobEvent = { type: 'sending', attempt: 1, owner: dead };
const reply: JobEvent = {
  type: 'reply',
  attempt: 1,
  reply: { status: 200, headers: { 'x-tt-logid': 'log9' }, text: '', complete: false },
};
const accepted: JobEvent = { type: 'accepted', handle: 'log9' };

test.each([
  ['before the response head was read', [sending, reply]],
  ['inside the stream', [sending, reply, accepted]],
])('a rerun of a speech command that was killed %s exits with 9 and sends nothing', async (_, events) => {
  const { run, server, target, deps } = await after(...events);
  writeFileSync(`${target}.part`, 'some');
  const incomplete = { code: 'speech_incomplete', exitCode: 9, charged: 'yes', requestId: 'log9' };
  const message = expect.stringContaining(`${target}.part`) as string;
  await expect(run()).rejects.toMatchObject({ ...incomplete, message });
  await expect(run()).rejects.toMatchObject({ ...incomplete, message });
  const [id = ''] = await deps.ledger.ids();
  expect(await deps.ledger.read(id)).toMatchObject({
    ...{ state: 'failed', error: { code: 'speech_incomplete' }, details: { part: `${target}.part` } },
  });
  expect(readFileSync(`${target}.part`, 'utf8')).toBe('some');
  expect(server.requests).toHaveLength(0);
});

test('the error of a speech job that was killed inside the stream contains the saved file, even before a rerun', async () => {
  const { target, deps } = await after(sending, reply, accepted);
  const [id = ''] = await deps.ledger.ids();
  const job = await deps.ledger.read(id);
  if (job === undefined) throw new Error('no job');
  expect(speechProblem(job)).toMatchObject({
    charged: 'maybe',
    message: expect.stringContaining('No audio was saved.') as string,
  });
  writeFileSync(`${target}.part`, 'some');
  expect(speechProblem(job)).toMatchObject({
    charged: 'yes',
    message: expect.stringContaining(`was saved in ${target}.part. The call was charged`) as string,
  });
});

describe('the files of a speech run that was killed', () => {
  const killed = async (target: string, write?: Buffer): Promise<void> => {
    const claimant = { ...claimantOf(0), owner: { ...currentOwner(), pid: dead.pid } };
    const lock = await lockAs(claimant, target, 'speech');
    if (write === undefined) {
      closeSync((await lock.openPart()).file);
      return;
    }
    const sink = new FileSink({ target, force: false, mime: 'audio/wav', wavRate: 8000 });
    sink.lock = lock;
    await sink.open();
    await sink.write(write);
    const kept = await sink.complete();
    linkSync(kept.path, target);
  };

  test('are removed when the next run publishes the output, if no audio had arrived', async () => {
    const { run, target, folder } = await after();
    for (let kill = 0; kill < 3; kill += 1) await killed(target);
    await run();
    expect(names(folder)).toEqual(['a.mp3']);
  });

  test('are removed when the next run finds the output, if the run was killed while publishing', async () => {
    const bench = await after(sending, reply, accepted);
    const { run, target, folder, deps } = bench;
    await killed(target, audio);
    const bytes = readFileSync(target);
    const kept = {
      path: `${target}.part`,
      bytes: bytes.length,
      sha256: createHash('sha256').update(bytes).digest('hex'),
    };
    const [id = ''] = await deps.ledger.ids();
    await deps.ledger.append(id, {
      type: 'finished',
      state: 'succeeded',
      native_status: '20000000',
      details: { kept },
    });
    expect(await run()).toMatchObject({ isResumed: true, file: { path: target } });
    expect(names(folder)).toEqual(['a.mp3']);
  });

  test('are kept and reported by the next run if audio had arrived', async () => {
    const { run, target, folder } = await after(sending, reply, accepted);
    writeFileSync(`${target}.part`, '');
    await killed(target, audio);
    rmSync(target);
    const other = names(folder).find((name) => /\.[\da-f]{8}\.part$/.test(name)) ?? '';
    expect(leftoverAt(target)).toBe(join(folder, other));
    await expect(run()).rejects.toMatchObject({ message: expect.stringContaining(other) as string });
    expect(names(folder)).toEqual([other, 'a.mp3.part'].sort());
    expect(readFileSync(join(folder, other)).subarray(44)).toEqual(audio);
  });
});

describe('the run after a run that was killed while marking an MP3 file as AI-generated', () => {
  const mp3 = Buffer.from(renderSpeech({ text: 'a boat', format: 'mp3', sampleRate: 24_000 }));
  const killed = async (
    { target, deps }: Bench,
    ...written: ('output' | 'record')[]
  ): Promise<{ again: () => Promise<SpeechResult>; marked: Buffer }> => {
    const leftover = new FileSink({ target, force: false, mime: 'audio/mpeg', mark: () => undefined });
    leftover.lock = await lockAs(claimantOf(0), target, 'speech');
    await leftover.open();
    await leftover.write(mp3);
    const kept = await leftover.complete();
    const details = { kept };
    const [id = ''] = await deps.ledger.ids();
    await deps.ledger.append(id, {
      type: 'finished',
      state: 'succeeded',
      native_status: '20000000',
      details,
    });
    const file = await leftover.publish(kept);
    const marked = readFileSync(target);
    if (!written.includes('output')) rmSync(target);
    if (written.includes('record')) await deps.ledger.append(id, { type: 'file', file });
    leftover.lock.release();
    const again = (): Promise<SpeechResult> => {
      const options = { target, force: false, mime: 'audio/mpeg', mark: () => undefined };
      const order = { body, output: target, fresh: false, deadline: deadlineIn(10_000, deps.clock) };
      return speak(order, deps, new FileSink(options));
    };
    return { again, marked };
  };

  test.each([
    ['before publishing the file', []],
    ['before recording the file', ['output']],
    ['before removing the temporary file', ['output', 'record']],
  ] as const)('delivers the marked file and sends nothing (killed %s)', async (_, written) => {
    const bench = await after(sending, reply, accepted);
    const { again, marked } = await killed(bench, ...written);
    const file = {
      path: bench.target,
      sha256: createHash('sha256').update(marked).digest('hex'),
      unmarked_sha256: createHash('sha256').update(mp3).digest('hex'),
    };
    expect(await again()).toMatchObject({ isResumed: true, file });
    expect(readFileSync(bench.target)).toEqual(marked);
    expect(marked.subarray(-mp3.length).equals(mp3)).toBe(true);
    expect(names(bench.folder)).toEqual(['a.mp3']);
    expect(bench.server.requests).toHaveLength(0);
  });
});

test('a finished speech file is delivered even if another run is waiting for the same file', async () => {
  const bench = await after(sending, reply, accepted);
  const { server, target, folder, deps } = bench;
  writeFileSync(target, audio);
  const kept = { path: `${target}.part`, bytes: audio.length, sha256: sha256 };
  const [id = ''] = await deps.ledger.ids();
  const events: JobEvent[] = [
    { type: 'finished', state: 'succeeded', native_status: '20000000', details: { kept } },
    { type: 'began', run: 'r2', owner: currentOwner(), command: 'submit', ask: 'file', output: target },
  ];
  for (const event of events) await deps.ledger.append(id, event);
  expect(await bench.run()).toMatchObject({ isResumed: true, file: { path: target } });
  expect(names(folder)).toEqual(['a.mp3']);
  expect(server.requests).toHaveLength(0);
});

test("speech is saved, and mgw exits with 10, if the ledger's disk fills up after the response head arrives", async () => {
  const { run, server, target, deps } = await after();
  const { ledger } = deps;
  let broken = false;
  const append: JobDeps['ledger']['append'] = async (id, event) => {
    broken ||= event.type === 'reply';
    if (broken) throw new Error('no space left on device');
    await ledger.append(id, event);
  };
  deps.ledger = { ...ledger, append };
  await expect(run()).rejects.toMatchObject({
    code: 'local_io',
    exitCode: 10,
    charged: 'yes',
    message: expect.stringContaining(target) as string,
  });
  expect(readFileSync(target)).toEqual(audio);
  expect(server.requests).toHaveLength(1);
});
