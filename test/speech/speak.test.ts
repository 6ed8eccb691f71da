import { createHash } from 'node:crypto';
import { chmodSync, existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Budget } from '../../src/budget/budget.ts';
import { openBudget } from '../../src/budget/file-budget.ts';
import { deadlineIn } from '../../src/clock.ts';
import { type Decimal, decimalOf, formatDecimal } from '../../src/decimal.ts';
import type { Job, JobFile } from '../../src/job.ts';
import { FileSink } from '../../src/speech/file-sink.ts';
import { StreamSink } from '../../src/speech/sink.ts';
import { speak, type SpeechOrder, type SpeechResult } from '../../src/speech/speak.ts';
import { onEnd } from '../support/clean-ups.ts';
import { watchDisk } from '../support/disk-operations.ts';
import { end, type Frames, frameText, speechBody } from './frames.ts';
import {
  type Answer,
  depsFor,
  freshFolder,
  key,
  names,
  quickClock,
  speechServer,
  type TestDeps,
} from './harness.ts';

const [one, two] = [Buffer.from('first audio '), Buffer.from('second audio')];
const body = { req_params: { text: 'Hello there.', audio_params: { format: 'mp3', sample_rate: 24000 } } };
const whole = Buffer.concat([one, two]);

interface Bench {
  folder: string;
  target: string;
  deps: TestDeps;
  run: (order?: Partial<SpeechOrder>, more?: object) => Promise<SpeechResult>;
}

async function bench(url: string, folder = freshFolder()): Promise<Bench> {
  const target = join(folder, 'a.mp3');
  const deps = await depsFor(url, folder);
  const run = (order: Partial<SpeechOrder> = {}, more: object = {}): Promise<SpeechResult> => {
    const sink = new FileSink({ target, force: false, mime: 'audio/mpeg' });
    const deadline = deadlineIn(1e9, deps.clock);
    return speak(
      { body, output: target, fresh: false, deadline, ...order },
      { ...deps, idleTimeoutMs: 1000, ...more },
      sink,
    );
  };
  return { folder, target, deps, run };
}

async function failure(run: Promise<unknown>): Promise<Record<string, unknown>> {
  const error = await run.then(
    () => undefined,
    (reason: unknown) => reason as Error & Record<string, unknown>,
  );
  if (error === undefined) throw new Error('it succeeded');
  const { code, exitCode, charged, retry, message, requestId } = error;
  return { code, exitCode, charged, retry, message, requestId, job: (error['job'] as Job | undefined)?.id };
}

const incomplete = { code: 'speech_incomplete', exitCode: 9, charged: 'yes', retry: 'never' };

test('mgw saves speech and records every step', async () => {
  const server = await speechServer([one, { code: 0, data: null, sentence: {} }, two, end]);
  const { run, target, folder, deps } = await bench(server.url);
  const { job, file, isResumed } = await run();
  const sha256 = createHash('sha256').update(whole).digest('hex');
  const expected: JobFile = { path: target, bytes: whole.length, sha256, mime: 'audio/mpeg' };
  expect({ file, isResumed }).toEqual({ file: expected, isResumed: false });
  expect(readFileSync(target)).toEqual(whole);
  expect(names(folder)).toEqual(['a.mp3']);
  expect(job).toMatchObject({ protocol: 'tts', state: 'succeeded', handle: 'log1', files: [expected] });
  expect(job).toMatchObject({ model: 'speech-tts-2.0', usage: { text_words: 10 }, request: body });
  expect(job.record).toMatchObject({ goals: [{ ask: 'file', output: target }] });
  expect(await deps.ledger.ids()).toEqual([job.id]);
  const [request] = server.requests;
  expect(request).toMatchObject({ path: '/api/v3/tts/unidirectional', body: JSON.stringify(body) });
  expect(request?.headers).toMatchObject({
    'x-api-key': key,
    'x-api-resource-id': 'speech-tts-2.0',
    'content-type': 'application/json; charset=utf-8',
  });
  expect(request?.headers).not.toHaveProperty('authorization');
});

test('speech is not paid for again under a different key if its outcome did not reach an agent', async () => {
  const server = await speechServer([one, end], [one, end]);
  const { run, deps } = await bench(server.url);
  const agent = { blockedByAnyDoubt: deadlineIn(0, deps.clock), key: 'one' };
  const untold = await run(agent);
  const again = { ...agent, key: 'two' };
  expect(await failure(run(again))).toMatchObject({ code: 'conflict', charged: 'no', job: untold.job.id });
  expect(server.requests).toHaveLength(1);
  await untold.delivered();
  expect(await failure(run(again))).toMatchObject({ code: 'output_exists' });
});

test.each<[string, Frames]>([
  ['was cut off', [one]],
  ['ended with an error frame', [one, { code: 55000000, message: 'no' }]],
])(
  'speech that %s is paid for again under a different key only after an agent received the failure',
  async (_, frames) => {
    const server = await speechServer(frames, [one, end]);
    const { run, folder } = await bench(server.url);
    const agent = (isReported: boolean): object => ({
      onFailedRun: (record: (isReported: boolean) => Promise<void>) => void record(isReported),
    });
    const first = { blockedByAnyDoubt: deadlineIn(0, quickClock()), key: 'one' };
    const second = { ...first, key: 'two', output: join(folder, 'b.mp3') };
    const failed = await failure(run(first, agent(false)));
    expect(failed).toMatchObject({ retry: 'never' });
    expect(await failure(run(second))).toMatchObject({ code: 'conflict', charged: 'no', job: failed['job'] });
    expect(await failure(run(first, agent(true)))).toMatchObject({
      code: failed['code'],
      job: failed['job'],
    });
    expect(server.requests).toHaveLength(1);
    expect(await run(second)).toMatchObject({ isResumed: false });
    expect(server.requests).toHaveLength(2);
  },
);

test('a failed row of a batch does not block the same speech under a key, because the status of the batch reports it', async () => {
  const server = await speechServer([one], [one, end]);
  const { run, folder } = await bench(server.url);
  const unreported = { onFailedRun: (record: (isReported: boolean) => Promise<void>) => void record(false) };
  expect(await failure(run({ key: 'clips/1' }, unreported))).toMatchObject(incomplete);
  const agent = { blockedByAnyDoubt: { remainingMs: () => 0 }, key: 'two', output: join(folder, 'b.mp3') };
  expect(await run(agent)).toMatchObject({ isResumed: false });
});

test('a speech submission in doubt blocks every variant of its request, and the key of a finished job cannot be used for a different file format', async () => {
  const lose: Answer = (response) => void response.destroy();
  const server = await speechServer(lose, [one, end], [one, end]);
  const { run, deps, folder } = await bench(server.url);
  const lost = await failure(run({ variant: 'wav' }));
  expect(lost).toMatchObject({ exitCode: 7 });
  for (const variant of [undefined, 'wav', 'piece 3'])
    expect(await failure(run({ variant, output: join(folder, 'b.mp3') }))).toMatchObject({
      ...{ exitCode: 7, job: lost['job'] },
    });
  expect(server.requests).toHaveLength(1);
  await deps.ledger.append(String(lost['job']), { type: 'resolved', how: 'not-created' });
  await (await run({ variant: 'wav', key: 'k' })).delivered();
  expect(await failure(run({ key: 'k' }))).toMatchObject({
    ...{
      code: 'conflict',
      exitCode: 2,
      message: expect.stringContaining('the format was wav, is pcm') as string,
    },
  });
  expect(server.requests).toHaveLength(2);
});

describe('a speech run', () => {
  test('succeeds even if its lock cannot be removed at the end', async () => {
    const server = await speechServer([one, end]);
    const { run, target, folder, deps } = await bench(server.url);
    onEnd(() => watchDisk(undefined));
    await watchDisk(({ name, path }, act) => {
      if (name === 'unlink' && path === `${target}.part.json`) throw new Error('EIO');
      return act();
    });
    expect(await run()).toMatchObject({ file: { path: target } });
    expect(deps.notes.join()).toContain('A leftover could not be removed');
    expect(names(folder)).toEqual(['a.mp3', 'a.mp3.part.json']);
  });

  test('succeeds even if the connection is reset after the end frame', async () => {
    const server = await speechServer((response) => {
      response.writeHead(200);
      response.write(speechBody([one, end]), () => response.destroy());
    });
    const { run, target } = await bench(server.url);
    await run();
    expect(readFileSync(target)).toEqual(one);
  });

  test('records the usage even if the usage is reported before the end frame', async () => {
    const early = { code: 0, data: one.toString('base64'), usage: { text_words: 7 } };
    const server = await speechServer([early, { code: 20000000, data: null }]);
    expect((await (await bench(server.url)).run()).job.usage).toEqual({ text_words: 7 });
  });

  test('saves all audio even if the end frame contains the last audio', async () => {
    const server = await speechServer([one, { ...end, data: two.toString('base64') }]);
    expect((await (await bench(server.url)).run()).file?.bytes).toBe(whole.length);
  });
});

describe('a speech run whose stream does not prove success', () => {
  const cut =
    (text: string) =>
    (response: {
      writeHead(status: number): { write(text: string, then: () => void): void };
      destroy(): void;
    }) =>
      response.writeHead(200).write(text, () => response.destroy());

  test.each([
    ['ends without its end frame', [one], /ended without its end frame/],
    ['is reset inside a frame', cut(speechBody([one]) + '{"code":0'), /broke/],
    ['ends without audio', [end], /without any audio/],
    ['contains invalid Base64', [one, '{"code":0,"data":"%%%%"}', end], /not strict Base64/],
    [
      'is a web page',
      ['<html><body>Sign in</body></html>\n'],
      /an invalid frame: <html>.*check the base URL/,
    ],
    [
      'is silent',
      (response: { writeHead(status: number): { write(text: string): void } }) =>
        response.writeHead(200).write(speechBody([one])),
      /no data arrived for 1 s/,
    ],
  ])(
    'exits with 9, keeps the received audio, and sends nothing when repeated, if the stream %s',
    async (_, answer, why) => {
      const server = await speechServer(answer);
      const { run, folder, target, deps } = await bench(server.url);
      const first = await failure(run());
      const hasAudio = existsSync(`${target}.part`);
      const [charged, verb] = hasAudio ? ['yes', 'was charged'] : ['maybe', 'may have been charged'];
      expect(first).toMatchObject({ ...incomplete, charged, message: expect.stringMatching(why) as string });
      expect(first['message']).toContain(`The call ${verb} and is not sent again`);
      const [id = ''] = await deps.ledger.ids();
      expect(await deps.ledger.read(id)).toMatchObject({
        state: 'failed',
        error: { code: 'speech_incomplete' },
      });
      if (names(folder).length > 0) {
        expect(names(folder)).toEqual(['a.mp3.part']);
        expect(readFileSync(`${target}.part`)).toEqual(one);
        expect(first['message']).toContain(`${target}.part`);
      }
      server.answers = [[one, two, end]];
      expect(await failure(run())).toMatchObject({ ...incomplete, charged, job: id });
      expect(server.requests).toHaveLength(1);
      await run({ fresh: true });
      expect(readFileSync(target)).toEqual(whole);
      expect(server.requests).toHaveLength(2);
    },
  );

  test('does not block the same command after a newer take is complete', async () => {
    const server = await speechServer([one], [one, end]);
    const folder = freshFolder();
    const { run, target } = await bench(server.url, folder);
    await failure(run());
    await (await run({ fresh: true })).delivered();
    writeFileSync(target, 'mine');
    expect(await failure(run())).toMatchObject({ code: 'output_exists', charged: 'no' });
    expect(server.requests).toHaveLength(2);
  });

  test('ends at the deadline if the stream has not ended', async () => {
    const server = await speechServer((response) => {
      response.writeHead(200);
      const timer = setInterval(() => response.write(frameText(one)), 20);
      response.on('close', () => clearInterval(timer));
    });
    const { run, deps } = await bench(server.url);
    const deadline = deadlineIn(1500, deps.clock);
    expect(await failure(run({ deadline }))).toMatchObject({
      ...incomplete,
      message: expect.stringContaining('deadline passed') as string,
    });
  });
});

describe('a speech budget', () => {
  const priced = { what: 'speech', cost: { at_most: '0.5', per_10k_characters: '1000' } };
  const early = (words: number): object => ({
    ...{ code: 0, data: one.toString('base64'), usage: { text_words: words } },
  });

  /** Prepares a run with a budget of 10. `spent` starts the run and returns the amount spent from the budget. */
  async function underBudget(
    url: string,
  ): Promise<Bench & { budget: Budget; spent: (budget?: Budget) => Promise<string> }> {
    const own = await bench(url);
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const budget = await openBudget(join(own.folder, 'state', 'b.jsonl'), { now: () => 0, outcomeOf });
    onEnd(() => budget.close());
    const spent = async (used = budget): Promise<string> => {
      const allowance = { name: 'b', label: 'b', budget: used, limit: { amount: decimalOf(10) } };
      const allowances = (): Promise<object[]> => Promise.resolve([allowance]);
      const priceOf = (): Promise<object> => Promise.resolve(priced);
      await own.run({}, { allowances, priceOf }).catch(() => undefined);
      return formatDecimal((await budget.state()).spent);
    };
    return { ...own, budget, spent };
  }

  test.each<[string, Frames, string]>([
    ['the characters that the gateway counted', [one, end], '1'],
    ['a count below the estimate', [early(2), { code: 20000000 }], '0.2'],
    ['the estimate if the gateway did not count', [one, { code: 20000000 }], '0.5'],
    ['a higher count of a stream that broke off', [early(7)], '0.7'],
    ['the estimate if the count of a stream that broke off may be incomplete', [early(2)], '0.5'],
    ['the count of an error frame', [one, { code: 1, usage: { text_words: 8 } }], '0.8'],
  ])('includes %s', async (_, frames, expected) => {
    const { spent } = await underBudget((await speechServer(frames)).url);
    expect(await spent()).toBe(expected);
  });

  test.each<[string, Frames, string]>([
    ['complete speech', [one, end], '1'],
    ['speech that broke off', [early(7)], '0.7'],
  ])(
    "includes the gateway's count of %s if the run died before it corrected the budget",
    async (_, frames, expected) => {
      const server = await speechServer(frames);
      const { spent, budget, deps } = await underBudget(server.url);
      const dying: Budget = Object.assign(Object.create(budget) as Budget, {
        reserve: budget.reserve.bind(budget),
        keep: (id: string, amount?: Decimal) =>
          amount === undefined ? budget.keep(id) : Promise.reject(new Error('EIO')),
      });
      expect(await spent(dying)).toBe('0.5');
      expect(deps.notes.join()).toContain('could not be recorded in its budgets: EIO');
      expect(await spent()).toBe(expected);
      expect(server.requests).toHaveLength(1);
    },
  );

  test("includes the gateway's count even if the acceptance could not be recorded", async () => {
    const server = await speechServer([one, end]);
    const { spent, deps } = await underBudget(server.url);
    const append = deps.ledger.append.bind(deps.ledger);
    deps.ledger.append = (id, event) =>
      event.type === 'accepted' ? Promise.reject(new Error('EIO')) : append(id, event);
    expect(await spent()).toBe('1');
  });
});

describe('an error frame in a speech stream', () => {
  test('leads to exit 5 with an error class if it is the first frame, and nothing is saved', async () => {
    const server = await speechServer([{ code: 45000000, message: 'speaker permission denied' }]);
    const { run, folder, deps } = await bench(server.url);
    expect(await failure(run())).toMatchObject({
      code: 'auth',
      exitCode: 5,
      charged: 'maybe',
      retry: 'never',
      requestId: 'log1',
      message: expect.stringContaining('--speaker') as string,
    });
    expect(names(folder)).toEqual([]);
    expect(server.requests).toHaveLength(1);
    const [id = ''] = await deps.ledger.ids();
    expect(await deps.ledger.read(id)).toMatchObject({ state: 'failed', native_status: '45000000' });
  });

  test('leads to exit 5 if it follows audio, and the received audio is saved', async () => {
    const server = await speechServer([one, { code: 55000000, message: 'server error' }, two, end]);
    const { run, folder, target } = await bench(server.url);
    const message = `Error 55000000: server error. The received audio was saved in ${target}.part. The call is not sent again automatically: --new pays for another take.`;
    const failed = { code: 'server_error', exitCode: 5, message };
    expect(await failure(run())).toMatchObject(failed);
    expect(names(folder)).toEqual(['a.mp3.part']);
    expect(readFileSync(`${target}.part`)).toEqual(one);
    expect(await failure(run())).toMatchObject(failed);
    expect(server.requests).toHaveLength(1);
    await failure(run({ fresh: true }));
    expect(server.requests).toHaveLength(2);
  });
});

describe('a failure before the speech stream', () => {
  const refuse =
    (status: number, text: object | string) =>
    (response: { writeHead(status: number): { end(text: string): void } }) =>
      response.writeHead(status).end(typeof text === 'string' ? text : JSON.stringify(text));
  const reset = (response: { destroy(): void }): void => response.destroy();

  test.each([
    [401, { error: { message: 'Invalid token' } }, { code: 'auth', exitCode: 3 }],
    [403, { error: { message: 'Insufficient balance' } }, { code: 'balance', exitCode: 4 }],
  ])('is a refusal at no charge that leaves no files if the status is %i', async (status, text, expected) => {
    const server = await speechServer(refuse(status, text));
    const { run, folder } = await bench(server.url);
    expect(await failure(run())).toMatchObject({ ...expected, charged: 'no' });
    expect(names(folder)).toEqual([]);
    expect(server.requests).toHaveLength(1);
  });

  test.each([
    ['HTTP 500', refuse(500, { error: { message: 'oops' } })],
    ['a reset', reset],
    ['silence', () => undefined],
  ])('leads to exit 7 if it is %s, and a rerun sends nothing', async (_, answer) => {
    const server = await speechServer(answer);
    const { run, folder } = await bench(server.url);
    const unknown = { code: 'submit_unknown', exitCode: 7, charged: 'maybe' };
    expect(await failure(run({}, { requestTimeoutMs: 300 }))).toMatchObject(unknown);
    expect(await failure(run())).toMatchObject(unknown);
    expect(server.requests).toHaveLength(1);
    expect(names(folder)).toEqual([]);
  });

  test.each([
    [{}, ': --new pays for another take.'],
    [{ key: 'k' }, ': another --key pays for another take.'],
  ])(
    'causes an error that explains how to pay for another take if the outcome is unknown (%j)',
    async (more, words) => {
      const server = await speechServer(reset);
      const { run } = await bench(server.url);
      for (let runs = 0; runs < 2; runs += 1)
        expect(await failure(run(more))).toMatchObject({ message: expect.stringContaining(words) as string });
      expect(server.requests).toHaveLength(1);
    },
  );

  test('occurs at the deadline if the response never begins', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const server = await speechServer(() => void vi.advanceTimersByTime(1200));
    const { run, deps } = await bench(server.url);
    expect(await failure(run({ deadline: deadlineIn(200, deps.clock) }))).toMatchObject({ exitCode: 7 });
  });

  test('has an unknown outcome if the refusal never ends', async () => {
    const server = await speechServer((response) => void response.writeHead(400).write('{"error":'));
    expect(await failure((await bench(server.url)).run())).toMatchObject({ code: 'submit_unknown' });
  });

  test('leads to exit 6 if the gateway is unreachable, and a later run succeeds', async () => {
    const server = await speechServer([one, end]);
    const folder = freshFolder();
    const down = await bench('http://127.0.0.1:9', folder);
    expect(await failure(down.run({}, { retries: 1 }))).toMatchObject({
      code: 'unreachable',
      exitCode: 6,
      charged: 'no',
    });
    expect(names(folder)).toEqual([]);
    await (await bench(server.url, folder)).run();
    expect(names(folder)).toEqual(['a.mp3']);
  });

  test('leads to exit 10 before anything is sent if the output already exists', async () => {
    const server = await speechServer([one, end]);
    const { run, folder, target } = await bench(server.url);
    writeFileSync(target, 'mine');
    expect(await failure(run())).toMatchObject({ code: 'output_exists', exitCode: 10, charged: 'no' });
    expect(readFileSync(target, 'utf8')).toBe('mine');
    expect(names(folder)).toEqual(['a.mp3']);
    expect(server.requests).toHaveLength(0);
  });
});

describe('the audio of an earlier run', () => {
  test('is never overwritten, because the next take has its own temporary file', async () => {
    const server = await speechServer([one], [two, end]);
    const { run, folder, target } = await bench(server.url);
    await failure(run());
    await run({ fresh: true });
    expect(names(folder)).toEqual(['a.mp3', 'a.mp3.part']);
    expect(readFileSync(`${target}.part`)).toEqual(one);
    expect(readFileSync(target)).toEqual(two);
  });

  test('is removed if the output has the same content', async () => {
    const server = await speechServer([one], [one, end]);
    const { run, folder } = await bench(server.url);
    await failure(run());
    await run({ fresh: true });
    expect(names(folder)).toEqual(['a.mp3']);
  });

  test('does not prevent the same command from paying for a second take if it was complete', async () => {
    const server = await speechServer([one, end]);
    const { run, target } = await bench(server.url);
    const first = await run();
    await first.delivered();
    rmSync(target);
    const second = await run();
    expect(second.job.id).not.toBe(first.job.id);
    expect(server.requests).toHaveLength(2);
  });

  test('is delivered again from its file if the run had a key', async () => {
    const server = await speechServer([one, two, end]);
    const { run, folder, target, deps } = await bench(server.url);
    const first = await run({ key: 'greeting' });
    expect(await run({ key: 'greeting' })).toMatchObject({ isResumed: true, file: first.file });
    const other = join(folder, 'b.mp3');
    const sink = new FileSink({ target: other, force: false, mime: 'audio/mpeg' });
    const order = {
      body,
      output: target,
      fresh: false,
      key: 'greeting',
      deadline: deadlineIn(1000, deps.clock),
    };
    expect(await speak(order, deps, sink)).toMatchObject({ isResumed: true, file: { path: other } });
    expect(readFileSync(other)).toEqual(whole);
    expect(readFileSync(target)).toEqual(whole);
    expect(server.requests).toHaveLength(1);
  });

  test('cannot be fetched again if the run had a key but the file is missing', async () => {
    const server = await speechServer([one, end]);
    const { run, target } = await bench(server.url);
    await run({ key: 'greeting' });
    writeFileSync(target, 'changed!');
    renameSync(target, `${target}.mine`);
    expect(await failure(run({ key: 'greeting' }))).toMatchObject({
      code: 'result_unavailable',
      exitCode: 9,
      charged: 'yes',
    });
    expect(server.requests).toHaveLength(1);
  });
});

test('speech that could not be written is reported as charged, by its run and by the next one', async () => {
  const server = await speechServer([one, end]);
  const { deps } = await bench(server.url);
  const run = (): Promise<SpeechResult> => {
    const full = new Writable({ write: (_chunk, _encoding, done) => done(new Error('the disk is full')) });
    const order = { body, output: '-', fresh: false, deadline: deadlineIn(1e9, deps.clock) };
    return speak(order, deps, new StreamSink(full.on('error', () => undefined)));
  };
  expect(await failure(run())).toMatchObject({ exitCode: 10, charged: 'yes' });
  const again = await failure(run());
  expect(again).toMatchObject({
    ...incomplete,
    message: expect.stringContaining('full. No audio') as unknown,
  });
  expect(again['message']).toContain('The call was charged and is not sent again');
});

test('a second interruption ends a speech stream with exit 130, and the received audio is kept', async () => {
  const server = await speechServer((response) => void response.writeHead(200).write(speechBody([one])));
  const { run, folder, deps } = await bench(server.url);
  const onAudio = (): void => {
    deps.soft.abort('SIGINT');
    setImmediate(() => deps.hard.abort('SIGINT'));
  };
  expect(await failure(run({}, { onAudio, idleTimeoutMs: 20_000 }))).toMatchObject({
    ...incomplete,
    exitCode: 130,
  });
  expect(names(folder)).toEqual(['a.mp3.part']);
  expect(deps.notes.join()).toMatch(/finishes it first/);
});

test('a single interruption lets a speech stream finish', async () => {
  const server = await speechServer((response) => {
    response.writeHead(200).write(speechBody([one]));
    setTimeout(() => response.end(speechBody([two, end])), 50);
  });
  const { run, target, deps } = await bench(server.url);
  await run({}, { onAudio: () => deps.soft.abort('SIGINT') });
  expect(readFileSync(target)).toEqual(whole);
});

test.skipIf(process.getuid?.() === 0)(
  'an output folder that is not writable makes the command exit with 10 before any speech request is sent',
  async () => {
    const server = await speechServer([one, end]);
    const { run, folder } = await bench(server.url);
    chmodSync(folder, 0o500);
    expect(await failure(run())).toMatchObject({ code: 'local_io', exitCode: 10, charged: 'no' });
    chmodSync(folder, 0o700);
    expect(server.requests).toHaveLength(0);
    expect(existsSync(join(folder, 'a.mp3'))).toBe(false);
  },
);
