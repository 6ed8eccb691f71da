import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { openBudget } from '../../src/budget/file-budget.ts';
import { deadlineIn } from '../../src/clock.ts';
import { parseDecimal } from '../../src/decimal.ts';
import { FileSink } from '../../src/speech/file-sink.ts';
import { PiecesError } from '../../src/speech/errors.ts';
import { joinedPart, joinerFor, wavHeader } from '../../src/speech/containers.ts';
import { speakPieces, type PiecesOrder, type SpokenPieces } from '../../src/speech/pieces.ts';
import { type AudioSink, StreamSink } from '../../src/speech/sink.ts';
import { end, speechBody } from './frames.ts';
import {
  depsFor,
  freshFolder,
  names,
  speechServer,
  type Answer,
  type Seen,
  type TestDeps,
} from './harness.ts';
import { onEnd } from '../support/clean-ups.ts';
import { readAll } from '../support/read-all.ts';

const texts = ['one', 'two', 'three', 'four', 'five'];
const bodies = texts.map((text) => ({ req_params: { text } }));

/** Returns a handler whose audio is the request's text in angle brackets, unless `first` responds to the request. */
function speaker(first: (text: string, response: ServerResponse) => boolean = () => false): Answer {
  return (response, seen) => {
    const text = textOf(seen);
    if (first(text, response)) return;
    response.writeHead(200).end(speechBody([Buffer.from(`<${text}>`), end]));
  };
}

function textOf(seen: Seen): string {
  return (JSON.parse(seen.body) as { req_params: { text: string } }).req_params.text;
}

interface Bench {
  target: string;
  pieces: string;
  deps: TestDeps;
  run: (order?: Partial<PiecesOrder>, sink?: AudioSink) => Promise<SpokenPieces>;
  /** Speaks the text, and leaves the files of a process that died before reporting the output. */
  die: () => Promise<unknown>;
}

async function bench(url: string, folder = freshFolder()): Promise<Bench> {
  const target = join(folder, 'a.pcm');
  const pieces = `${target}.pieces`;
  const deps = await depsFor(url, folder);
  const plain = {
    bodies,
    fresh: false,
    concurrency: 2,
    folder: pieces,
    mime: 'audio/L16',
    join: (piece: Uint8Array) => piece,
  };
  const newSink = (): AudioSink => new FileSink({ target, force: false, mime: 'audio/L16' });
  const speak: Bench['run'] = (order = {}, sink = newSink()) =>
    speakPieces(
      { ...plain, deadline: deadlineIn(1e9, deps.clock), ...order },
      { ...deps, idleTimeoutMs: 20_000 },
      sink,
    );
  const run: Bench['run'] = async (...wanted) => {
    const spoken = await speak(...wanted);
    await spoken.delivered();
    return spoken;
  };
  const log = `${target}.part.json`;
  const die = async (): Promise<void> => {
    const { delivered } = await speak();
    const left = readFileSync(log, 'utf8').replace(/"pid":\d+/, `"pid":${2 ** 22 + 1}`);
    await delivered();
    writeFileSync(log, left);
  };
  return { target, pieces, deps, run, die };
}

/** Returns the names of the pieces in their folder, without the hash of the request at the end. */
function kept(pieces: string): string[] {
  return names(pieces).map((name) => name.replace(/-[\da-f]{16}$/, ''));
}

async function failure(run: Promise<unknown>): Promise<PiecesError> {
  const error: unknown = await run.catch((reason: unknown) => reason);
  if (!(error instanceof PiecesError)) throw new Error('not a failure of pieces', { cause: error });
  return error;
}

const refuse = (response: ServerResponse): boolean => {
  response.writeHead(401).end('{}');
  return true;
};
const broken = (response: ServerResponse): boolean => {
  response.writeHead(200).end(speechBody([Buffer.from('half')]));
  return true;
};

test('each piece of long speech is a separate job, and the output contains all pieces in order', async () => {
  const pending: (() => void)[] = [];
  let max = 0;
  const server = await speechServer((response, seen) => {
    pending.push(() => response.writeHead(200).end(speechBody([Buffer.from(`<${textOf(seen)}>`), end])));
    max = Math.max(max, pending.length);
    // The first piece receives its response last, because the order of pieces must not depend on that of the responses.
    if (pending.length === 2) pending.pop()?.();
    if (server.requests.length === texts.length) pending.pop()?.();
  });
  const { run, target, pieces, deps } = await bench(server.url);
  const { jobs, file, reused } = await run();
  expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
  expect(file).toMatchObject({ path: target, bytes: 29 });
  expect(jobs.map((job) => job.request)).toEqual(bodies);
  expect(reused).toBe(0);
  expect(max).toBe(2);
  expect(existsSync(pieces)).toBe(false);
  expect(new Set(jobs.map((job) => job.record.fingerprint)).size).toBe(5);
  expect(await deps.ledger.ids()).toHaveLength(5);
});

describe('a failed piece of long speech', () => {
  test('does not affect the other pieces, and a rerun pays only for missing pieces', async () => {
    let down = true;
    const server = await speechServer(
      speaker((text, response) => text === 'three' && down && refuse(response)),
    );
    const { run, target, pieces } = await bench(server.url);
    const error = await failure(run({ concurrency: 1 }));
    expect(error).toMatchObject({ code: 'auth', exitCode: 3, charged: 'yes' });
    expect(error.message).toMatch(
      /^Piece 3 of 5: .* 2 of 5 pieces are complete and saved in .*a\.pcm\.pieces/,
    );
    expect(error.jobs).toHaveLength(3);
    expect(kept(pieces)).toEqual(['0001', '0002']);
    expect(existsSync(`${target}.part`)).toBe(false);
    down = false;
    expect(await run()).toMatchObject({ reused: 2 });
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(server.requests.map(textOf).sort()).toEqual([...texts, 'three'].sort());
  });

  test('is the only piece that is paid for again, and only with --new, if its stream was truncated', async () => {
    let cut = true;
    const server = await speechServer(speaker((text, response) => text === 'two' && cut && broken(response)));
    const { run, target } = await bench(server.url);
    expect(await failure(run())).toMatchObject({ code: 'speech_incomplete', exitCode: 9 });
    cut = false;
    expect(await failure(run())).toMatchObject({ code: 'speech_incomplete', exitCode: 9 });
    await run({ fresh: true });
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(server.requests.map(textOf).sort()).toEqual([...texts, 'two'].sort());
  });

  test('is not sent again in doubt because the default voice was changed, and pieces of different voices are not joined', async () => {
    let down = true;
    const server = await speechServer(
      speaker((text, response) => {
        if (down && text === 'two') response.destroy();
        return down && text === 'two';
      }),
    );
    const { run, pieces } = await bench(server.url);
    expect(await failure(run({ concurrency: 1 }))).toMatchObject({ exitCode: 7 });
    down = false;
    const voiced = texts.map((text) => ({ req_params: { text, speaker: 'v2' } }));
    const error = await failure(run({ bodies: voiced, userBodies: bodies, concurrency: 1 }));
    expect(error.exitCode).toBe(7);
    expect(error.message).toContain('4 of 5');
    expect(server.requests.map(textOf)).toEqual(['one', 'two', 'one', 'three', 'four', 'five']);
    expect(kept(pieces)).toEqual(['0001', '0001', '0003', '0004', '0005']);
  });

  test('does not prevent a rerun from speaking the other missing pieces if its outcome is unknown', async () => {
    let down = true;
    const server = await speechServer(
      speaker((text, response) => {
        if (!down || text !== 'two') return false;
        response.destroy();
        return true;
      }),
    );
    const { run, target } = await bench(server.url);
    expect(await failure(run({ concurrency: 1 }))).toMatchObject({ exitCode: 7 });
    down = false;
    const error = await failure(run({ concurrency: 1 }));
    expect(error.exitCode).toBe(7);
    expect(error.message).toMatch(/^Piece 2 of 5: .* 4 of 5 .* --new pays only for the others/);
    expect(server.requests.map(textOf)).toEqual(texts);
    expect(await run({ fresh: true })).toMatchObject({ reused: 4 });
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(server.requests.map(textOf)).toEqual([...texts, 'two']);
  });

  test("does not hide another piece's worse failure", async () => {
    const server = await speechServer(
      speaker((text, response) => {
        if (text === 'one') return refuse(response);
        response.destroy();
        return true;
      }),
    );
    const { run } = await bench(server.url);
    expect(await failure(run({ bodies: bodies.slice(0, 2) }))).toMatchObject({
      code: 'submit_unknown',
      exitCode: 7,
    });
  });

  test('is reported by its position in the text, and the pieces folder is removed if no piece is complete', async () => {
    const open = new Map<string, ServerResponse>();
    const server = await speechServer((response, seen) => {
      open.set(textOf(seen), response);
      const [one, two] = [open.get('one'), open.get('two')];
      if (one && two) two.writeHead(401).end('{}', () => void refuse(one));
    });
    const { run, pieces, target } = await bench(server.url);
    const part = joinedPart(pieces, bodies);
    const { message } = await failure(
      run({}, new FileSink({ target, force: false, mime: 'audio/L16', part })),
    );
    expect(message).toMatch(/^Piece 1 of 5 \(and 1 more\): /);
    expect(existsSync(pieces)).toBe(false);
  });

  test('lets running pieces finish, but prevents new pieces from starting', async () => {
    let release: (() => void) | undefined;
    const server = await speechServer(
      speaker((text, response) => {
        if (text === 'one') {
          release = () => response.writeHead(200).end(speechBody([Buffer.from('<one>'), end]));
          return true;
        }
        if (text !== 'two') return false;
        response.writeHead(401).end('{}');
        const releaseOnceThere = (): void => {
          if (release === undefined) setTimeout(releaseOnceThere, 10);
          else setTimeout(release, 50);
        };
        releaseOnceThere();
        return true;
      }),
    );
    const { run, pieces } = await bench(server.url);
    expect(await failure(run())).toMatchObject({ exitCode: 3 });
    expect(kept(pieces)).toEqual(['0001']);
    expect(server.requests.map(textOf).sort()).toEqual(['one', 'two']);
  });
});

describe('a budget that long speech exceeds', () => {
  const budgeted = async (amount: string) => {
    const server = await speechServer(speaker());
    const { run, deps, target } = await bench(server.url);
    const outcomeOf = (): Promise<'open'> => Promise.resolve('open');
    const budget = await openBudget(`${target}.budget`, { now: () => 0, outcomeOf });
    onEnd(() => budget.close());
    const limit = { amount: parseDecimal(amount) };
    deps.allowances = () => Promise.resolve([{ name: '--budget', label: 'the budget', budget, limit }]);
    deps.priceOf = () => Promise.resolve({ subject: 'speech', cost: { at_most: '1' } });
    return { server, run, limit };
  };

  test('pays for no piece, and the error contains the limit that covers all missing pieces', async () => {
    const { server, run, limit } = await budgeted('1.5');
    const error: unknown = await run().catch((reason: unknown) => reason);
    expect(error).toMatchObject({
      exitCode: 12,
      charged: 'no',
      budget: { limit: '1.5', exceeded_by: '3.5' },
    });
    expect(String(error)).toContain(
      'may cost up to 5 credits. The request was not sent. --budget 5 would allow',
    );
    expect(server.requests).toHaveLength(0);
    limit.amount = parseDecimal('5');
    await run();
    expect(server.requests).toHaveLength(5);
  });

  test('does not count pieces that an earlier run paid for, or that are in doubt', async () => {
    const { server, run } = await budgeted('5');
    server.answers = [speaker((text, response) => text === 'two' && broken(response))];
    await failure(run({ concurrency: 1 }));
    server.answers = [speaker()];
    expect(await failure(run({ concurrency: 1 }))).toMatchObject({ exitCode: 9 });
    expect(server.requests.map(textOf)).toEqual(texts);
  });

  test('stops the run with the limit for all missing pieces if the budget shrinks in the meantime', async () => {
    const { run, limit } = await budgeted('5');
    const onPiece = (): void => void (limit.amount = parseDecimal('1.5'));
    const error = await failure(run({ concurrency: 1, onPiece }));
    expect(error).toMatchObject({ exitCode: 12, charged: 'yes', retry: 'resume', parts: 'pieces' });
    expect(error.budget).toMatchObject({ limit: '1.5', exceeded_by: '3.5' });
    expect(error.message).toMatch(
      /^--budget 1\.5 is too low.* --budget 5 would allow it\. 1 of 5 pieces are complete/,
    );
    limit.amount = parseDecimal('5');
    expect(await run({ concurrency: 1 })).toMatchObject({ reused: 1 });
  });
});

test('an interrupted run of long speech finishes its paid pieces, and the next run completes the output', async () => {
  const server = await speechServer(speaker());
  const folder = freshFolder();
  const { run, deps, pieces } = await bench(server.url, folder);
  const onPiece = (): void => deps.soft.abort('SIGINT');
  const error = await failure(run({ concurrency: 1, onPiece }));
  expect(error).toMatchObject({ exitCode: 130, charged: 'yes', retry: 'resume' });
  expect(kept(pieces)).toEqual(['0001']);
  expect(await (await bench(server.url, folder)).run()).toMatchObject({ reused: 1 });
  expect(server.requests).toHaveLength(5);
});

test('long speech finishes its paid pieces after the deadline, and the next run completes the output', async () => {
  let remaining = 1e9;
  const server = await speechServer(
    speaker((text, response) => {
      if (text !== 'two' || remaining === 0) return false;
      remaining = 0;
      response.writeHead(200).write(speechBody([Buffer.from('<tw')]), () =>
        // The rest of the piece arrives after the reader has received its beginning.
        setImmediate(() => response.end(speechBody([Buffer.from('o>'), end]))),
      );
      return true;
    }),
  );
  const { run, pieces, target } = await bench(server.url);
  const deadline = { remainingMs: () => remaining };
  const error = await failure(run({ concurrency: 1, deadline }));
  expect(error).toMatchObject({ code: 'pending', exitCode: 8, charged: 'yes', retry: 'resume' });
  expect(error.message).toMatch(/^The timeout passed .* 2 of 5 pieces are complete/);
  expect(kept(pieces)).toEqual(['0001', '0002']);
  expect(await run()).toMatchObject({ reused: 2 });
  expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
  expect(server.requests.map(textOf)).toHaveLength(5);
});

test('a saved piece of long speech is not used if it was changed', async () => {
  const server = await speechServer(speaker((text, response) => text === 'five' && broken(response)));
  const { run, pieces, target } = await bench(server.url);
  await failure(run({ concurrency: 1 }));
  writeFileSync(join(pieces, names(pieces)[1] ?? ''), 'rubbish');
  server.answers = [speaker()];
  await run({ fresh: true });
  expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
  expect(server.requests).toHaveLength(7);
});

test('an existing output of long speech is refused before anything is paid for', async () => {
  const server = await speechServer(speaker());
  const { run, target } = await bench(server.url);
  writeFileSync(target, 'mine');
  await expect(run()).rejects.toMatchObject({ code: 'output_exists', charged: 'no' });
  expect(server.requests).toHaveLength(0);
  expect(readFileSync(target, 'utf8')).toBe('mine');
});

describe('a file that mgw did not create for long speech', () => {
  test('is not removed from the pieces folder, and the folder is kept', async () => {
    const server = await speechServer(speaker());
    const { run, target, pieces } = await bench(server.url);
    mkdirSync(join(pieces, 'takes'), { recursive: true });
    for (const name of ['0001', 'joined.part', 'takes/one'])
      writeFileSync(join(pieces, name), `mine: ${name}`);
    await run();
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(names(pieces)).toEqual(['0001', 'joined.part', 'takes']);
    for (const name of ['0001', 'joined.part', 'takes/one'])
      expect(readFileSync(join(pieces, name), 'utf8')).toBe(`mine: ${name}`);
  });

  test('is not changed through a link in place of the pieces folder: the command exits with 10 before anything is paid for', async () => {
    const server = await speechServer(speaker());
    const { run, pieces, deps } = await bench(server.url);
    const elsewhere = freshFolder();
    symlinkSync(elsewhere, pieces);
    await expect(run()).rejects.toMatchObject({ code: 'local_io', exitCode: 10, charged: 'no' });
    expect(deps.notes).toEqual([]);
    expect(names(elsewhere)).toEqual([]);
    expect(server.requests).toHaveLength(0);
  });

  test('is not overwritten through a link in place of the temporary output', async () => {
    const server = await speechServer(speaker());
    const { run, target, pieces } = await bench(server.url);
    const victim = join(freshFolder(), '.bashrc');
    writeFileSync(victim, 'mine');
    mkdirSync(pieces);
    const part = joinedPart(pieces, bodies);
    symlinkSync(victim, part);
    await run({}, new FileSink({ target, force: false, mime: 'audio/L16', part }));
    expect(readFileSync(victim, 'utf8')).toBe('mine');
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(existsSync(pieces)).toBe(false);
  });
});

describe('the run after a killed run of long speech', () => {
  test('reports the output once, at no charge, if the killed run had not reported it', async () => {
    const server = await speechServer(speaker());
    const { run, die, target } = await bench(server.url);
    await die();
    const again = await run();
    expect(again).toMatchObject({ file: { path: target, bytes: 29 }, reused: 5 });
    expect(again.jobs).toHaveLength(5);
    expect(existsSync(`${target}.part.json`)).toBe(false);
    await expect(run()).rejects.toMatchObject({ code: 'output_exists', charged: 'no' });
    expect(server.requests).toHaveLength(5);
  });

  test("exits with 10, and costs nothing, if the killed run's output was replaced", async () => {
    const server = await speechServer(speaker());
    const { run, die, target } = await bench(server.url);
    await die();
    writeFileSync(target, 'mine');
    await expect(run()).rejects.toMatchObject({ code: 'output_exists', charged: 'no' });
    expect(server.requests).toHaveLength(5);
  });
});

test.runIf(process.platform === 'linux')(
  'a run of long speech succeeds even if a file cannot be removed at the end',
  async () => {
    const server = await speechServer(speaker());
    const { run, target, pieces, deps } = await bench(server.url);
    const sink = new FileSink({ target, force: false, mime: 'audio/L16' });
    const publish = sink.publish.bind(sink);
    sink.publish = (file) => {
      const [piece = ''] = names(pieces);
      rmSync(join(pieces, piece));
      mkdirSync(join(pieces, piece, 'inner'), { recursive: true });
      return publish(file);
    };
    await run({}, sink);
    expect(readFileSync(target, 'utf8')).toBe('<one><two><three><four><five>');
    expect(deps.notes.join()).toContain('A leftover could not be removed');
  },
);

test('a stream receives the pieces of long speech in order, and a WAV file has one header', async () => {
  const server = await speechServer(speaker());
  const { run, target, pieces } = await bench(server.url);
  const stream = new PassThrough();
  expect(await run({}, new StreamSink(stream))).toMatchObject({ file: undefined });
  expect(String(readAll(stream))).toBe('<one><two><three><four><five>');
  expect(existsSync(pieces)).toBe(false);
  await run({}, new FileSink({ target, force: false, mime: 'audio/wav', wavRate: 8000 }));
  const audio = Buffer.from('<one><two><three><four><five>');
  const padded = Buffer.concat([audio, Buffer.alloc(1)]);
  expect(readFileSync(target)).toEqual(Buffer.concat([wavHeader(8000, 30), padded]));
});

test('two concurrent processes with the same long speech pay once and deliver the same output', async () => {
  const server = await speechServer(speaker());
  const folder = freshFolder();
  const [left, right] = [await bench(server.url, folder), await bench(server.url, folder)];
  const both = await Promise.all([left.run(), right.run()]);
  expect(both.map(({ reused }) => reused).sort()).toEqual([0, texts.length]);
  expect(both[0].file).toMatchObject({ ...both[1].file, bytes: 29 });
  expect(server.requests).toHaveLength(texts.length);
});

test('speech pieces can be joined if they are PCM, Ogg Opus or MP3, but not if they are AAC', () => {
  const piece = Buffer.from('x');
  expect(joinerFor('pcm')?.(piece, true)).toBe(piece);
  expect(joinerFor('ogg_opus')).toBeDefined();
  expect(joinerFor('mp3')).toBeDefined();
  expect(joinerFor('aac')).toBeUndefined();
});
