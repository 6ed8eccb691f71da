import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expectWhole, file, inTurn, sayChunked, useDownloads } from '../../support/downloads.ts';
import { film } from '../../support/film.ts';
import { head, say, serve, type Answer, type Served } from '../../support/raw-server.ts';

const size = 160_000;
const content = film(size);
const other = film(size);
const one: Served = { content, etag: '"one"' };
const two: Served = { content: other, etag: '"two"' };
const ctx = useDownloads();

/**
 * Returns a handler that serves a file correctly but closes the connection at each of the offsets in turn, and a
 * function that returns the number of bytes sent.
 */
function cutting(served: Served, cuts: readonly number[]): { answer: Answer; sent: () => number } {
  let [at, sent] = [0, 0];
  const answer: Answer = (request, socket) => {
    sent += serve(request, socket, { ...served, cutAt: cuts[at++] });
  };
  return { answer, sent: () => sent };
}

/** Responds with a 206 that has the given range, regardless of the requested range. */
function partial(range: string, body: Buffer, headers: Record<string, string> = { etag: '"one"' }): Answer {
  return (_, socket) =>
    say(
      socket,
      '206 Partial Content',
      { ...headers, ...(range !== '' && { 'content-range': range }), 'content-length': body.length },
      body,
    );
}

const sixteenths = Array.from({ length: 15 }, (_, at) => ((at + 1) * size) / 16);
const half = size / 2;

describe('an interrupted download', () => {
  it('is completed unchanged, with less than a tenth sent twice, if it breaks at every sixteenth of the file', async () => {
    const { answer, sent } = cutting(one, sixteenths);
    const server = await ctx.start(answer);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(sent()).toBeLessThan(size * 1.1);
    expect(server.header('range')).toEqual(['', ...sixteenths.map((at) => `bytes=${at}-`)]);
    expect(server.header('if-range')).toEqual(['', ...sixteenths.map(() => '"one"')]);
  });

  it('is completed unchanged if the connection is reset', async () => {
    const server = await ctx.start(
      inTurn((_, socket) => {
        socket.write(head('200 OK', { etag: '"one"', 'content-length': size }));
        socket.write(content.subarray(0, half), () => socket.resetAndDestroy());
      }, file(one)),
    );
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('is completed unchanged if the first response had no length', async () => {
    const server = await ctx.start(
      inTurn(
        (_, socket) => sayChunked(socket, content.subarray(0, half), false, { etag: '"one"' }),
        file(one),
      ),
    );
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${half}-`]);
  });

  it.each(['400 Bad Request', '403 Forbidden'])(
    'starts again if a range is refused with %s',
    async (status) => {
      const server = await ctx.start(
        inTurn(
          file({ ...one, cutAt: half }),
          (_, socket) => say(socket, status, {}, ''),
          (request, socket) => void serve(request, socket, one),
        ),
      );
      await expectWhole(await ctx.fetch(server.url()), content);
      expect(server.header('range')).toEqual(['', `bytes=${half}-`, '']);
    },
  );

  it('exits with 9 and keeps the received part if it breaks repeatedly at the same byte', async () => {
    const server = await ctx.start(file({ ...one, cutAt: half }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({
      code: 'result_corrupt',
      exitCode: 9,
      retry: 'resume',
    });
    expect((await readFile(ctx.part)).equals(content.subarray(0, half))).toBe(true);
    const better = await ctx.start(file(one));
    await expectWhole(await ctx.fetch(better.url()), content);
    expect(better.header('range')).toEqual([`bytes=${half}-`]);
  });

  it('is abandoned if each attempt receives only a few more bytes', async () => {
    let tries = 0;
    const server = await ctx.start(
      (request, socket) => void serve(request, socket, { ...one, cutAt: 1000 + tries++ }),
    );
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ exitCode: 9 });
    expect(tries).toBe(4);
  });

  it('uses no retries if each attempt makes progress', async () => {
    const server = await ctx.start(cutting(one, sixteenths).answer);
    await expectWhole(await ctx.fetch(server.url(), { retries: 0 }), content);
  });
});

describe('resuming an interrupted download', () => {
  it.each([
    ['there is no validator', { content }],
    ['the tag is weak', { content, etag: 'W/"one"' }],
    ['the file changed just now', { content, lastModified: new Date(Date.now() - 5000).toUTCString() }],
  ])('restarts the download without a range if %s', async (_, served: Served) => {
    const server = await ctx.start(cutting(served, [half]).answer);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', '']);
  });

  it('continues the download if a Last-Modified date is old enough to prove that the file is unchanged', async () => {
    const lastModified = new Date(Date.now() - 3_600_000).toUTCString();
    const server = await ctx.start(cutting({ content, lastModified }, [half]).answer);
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('if-range')).toEqual(['', lastModified]);
  });

  it('restarts the download if the server ignores ranges', async () => {
    const { answer } = cutting({ ...one, ranges: false }, [half, half]);
    await expectWhole(await ctx.fetch((await ctx.start(answer)).url()), content);
  });

  it('is abandoned if the server ignores ranges and every attempt breaks', async () => {
    const server = await ctx.start(file({ ...one, ranges: false, cutAt: half }));
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ exitCode: 9 });
    expect(server.requests).toHaveLength(5);
  });

  it('restarts the download if the file has been replaced', async () => {
    const server = await ctx.start(inTurn(file({ ...one, cutAt: half }), file(two)));
    await expectWhole(await ctx.fetch(server.url()), other);
  });
});

describe('an invalid continuation', () => {
  const rest = content.subarray(half);
  const last = size - 1;

  it.each([
    ['begins elsewhere', partial(`bytes 0-${last}/${size}`, content)],
    ['has a different total size', partial(`bytes ${half}-${last}/${size + 1}`, rest)],
    ['contains no range', partial('', rest)],
    ['contains an unreadable range', partial('bytes half of it', rest)],
    [
      'belongs to a different representation',
      partial(`bytes ${half}-${last}/${size}`, other.subarray(half), { etag: '"two"' }),
    ],
    [
      'is compressed',
      partial(`bytes ${half}-${last}/${size}`, rest, { 'content-encoding': 'gzip', etag: '"one"' }),
    ],
    [
      'is refused because the file is shorter',
      (_, socket) => say(socket, '416 No', { 'content-range': `bytes */${half}` }),
    ],
  ] satisfies [string, Answer][])('is not used if the response %s', async (_, lie) => {
    const server = await ctx.start(inTurn(file({ ...one, cutAt: half }), lie, file(one)));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${half}-`, '']);
  });

  it('is ignored if no range was requested', async () => {
    const server = await ctx.start(inTurn(partial(`bytes 0-${last}/${size}`, content), file(one)));
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('makes the download fail with exit code 9 if the server sends no valid continuation', async () => {
    const server = await ctx.start((request, socket) =>
      request.headers['range'] === undefined
        ? void serve(request, socket, { ...one, cutAt: half })
        : partial(`bytes 7-${last}/${size}`, content.subarray(7))(request, socket),
    );
    await expect(ctx.fetch(server.url())).rejects.toMatchObject({ code: 'result_corrupt', exitCode: 9 });
  });
});

describe('a valid continuation', () => {
  it('may be shorter than requested', async () => {
    const piece = partial(`bytes ${half}-${half + 29_999}/${size}`, content.subarray(half, half + 30_000));
    const server = await ctx.start(inTurn(file({ ...one, cutAt: half }), piece, file(one)));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${half}-`, `bytes=${half + 30_000}-`]);
  });

  it('may omit the size if it is known', async () => {
    const rest = partial(`bytes ${half}-${size - 1}/*`, content.subarray(half));
    const server = await ctx.start(inTurn(file({ ...one, cutAt: half }), rest));
    await expectWhole(await ctx.fetch(server.url()), content);
  });

  it('is not needed if all bytes have been received', async () => {
    const server = await ctx.start(file(one));
    await expectWhole(await ctx.fetch(server.url()), content);
    // Simulates a process that died before it published the complete temporary file.
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${size}-`]);
  });

  it('is not needed if an interrupted body without a length is complete', async () => {
    const server = await ctx.start(
      inTurn(
        (_, socket) => sayChunked(socket, content, false, { etag: '"one"' }),
        (_, socket) => say(socket, '416 No', { 'content-range': `bytes */${size}` }),
      ),
    );
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${size}-`]);
  });
});

describe('a Content-Length that is too long', () => {
  const tooLong: Answer = (_, socket) => {
    socket.write(head('200 OK', { etag: '"one"', 'content-length': size + 1000 }));
    socket.end(content);
  };
  const partly: Answer = (_, socket) => {
    socket.write(head('200 OK', { etag: '"one"', 'content-length': size + 1000 }));
    socket.end(content.subarray(0, half));
  };

  it.each<[string, Answer, Answer, number]>([
    [
      'a 416 with the size',
      tooLong,
      (_, socket) => say(socket, '416 No', { 'content-range': `bytes */${size}`, etag: '"one"' }),
      size,
    ],
    [
      'a 206 with the size',
      partly,
      partial(`bytes ${half}-${size - 1}/${size}`, content.subarray(half), { etag: '"one"' }),
      half,
    ],
  ])('is corrected by %s with the same ETag', async (_, first, second, from) => {
    const server = await ctx.start(inTurn(first, second));
    await expectWhole(await ctx.fetch(server.url()), content);
    expect(server.header('range')).toEqual(['', `bytes=${from}-`]);
  });

  it('is not corrected by a 416 with a different ETag or no ETag', async () => {
    const lie =
      (etag?: string): Answer =>
      (_, socket) =>
        say(socket, '416 No', { 'content-range': `bytes */${size}`, ...(etag && { etag }) });
    for (const etag of ['"two"', undefined]) {
      const server = await ctx.start(inTurn(tooLong, lie(etag), file(one)));
      ctx.target += '.x';
      await expectWhole(await ctx.fetch(server.url()), content);
      expect(server.header('range')).toEqual(['', `bytes=${size}-`, '']);
    }
  });
});

describe('a stalled connection', () => {
  async function stalled(answer: Answer): Promise<void> {
    const server = await ctx.start(inTurn(answer, file(one)));
    const fetching = ctx.fetch(server.url(), { idleTimeoutMs: 60_000 });
    // If this assertion fails, the output contains the requests and thus shows the client that sent them.
    await expect.poll(() => server.requests).toHaveLength(1);
    while (server.requests.length === 1) {
      ctx.clock.advance(30_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expectWhole(await fetching, content);
  }

  it('is closed, and the download continues on a new connection', async () => {
    await stalled((_, socket) => {
      socket.write(head('200 OK', { etag: '"one"', 'content-length': size }));
      socket.write(content.subarray(0, half));
    });
  });

  it('is closed if it sends no response', async () => {
    await stalled(() => undefined);
  });

  it('makes the download fail with exit code 6 if every connection stalls', async () => {
    const server = await ctx.start(() => undefined);
    const fetching = expect(ctx.fetch(server.url(), { retries: 1 })).rejects.toMatchObject({
      code: 'unreachable',
      exitCode: 6,
      message: expect.stringContaining('no data arrived for 60 s') as string,
    });
    for (const tries of [1, 2]) {
      await expect.poll(() => server.requests.length).toBe(tries);
      ctx.clock.advance(60_000);
    }
    await fetching;
  });
});

describe('for any host behaviour,', () => {
  const small = [film(3000), film(3000)].map((bytes, at): Served => ({ content: bytes, etag: `"${at}"` }));
  const move = fc.record({
    version: fc.constantFrom(0, 1),
    cutAt: fc.option(fc.integer({ min: 0, max: 3000 }), { nil: undefined }),
    lie: fc.constantFrom(
      'none',
      'none',
      'ignores If-Range',
      'ignores Range',
      'shifts',
      '416',
      '500',
      'reset',
    ),
    shift: fc.integer({ min: -50, max: 50 }),
  });
  type Move = typeof move extends fc.Arbitrary<infer M> ? M : never;

  function moved({ version, cutAt, lie, shift }: Move): Answer {
    const served: Served = { ...small[version], cutAt } as Served;
    const size416 = { 'content-range': `bytes */${3000 + shift}`, 'content-length': 0 };
    if (lie === 'reset') return (_, socket) => void socket.resetAndDestroy();
    if (lie === '500') return (_, socket) => say(socket, '500 Oops', { 'content-length': 0 });
    if (lie === '416') return (_, socket) => say(socket, '416 No', size416);
    return (request, socket) => {
      const { 'if-range': tag, range, ...plain } = request.headers;
      if (lie === 'ignores Range') return void serve({ ...request, headers: plain }, socket, served);
      if (lie === 'ignores If-Range' && range !== undefined)
        return void serve({ ...request, headers: { ...plain, range } }, socket, served);
      if (lie === 'shifts' && range !== undefined && tag !== undefined) {
        const from = Math.max(0, Number(/\d+/.exec(range)?.[0]) + shift);
        const headers = { ...plain, range: `bytes=${from}-`, 'if-range': tag };
        return void serve({ ...request, headers }, socket, served);
      }
      serve(request, socket, served);
    };
  }

  it('the file equals a version that the host served, and is never a mix of versions', async () => {
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(move, { maxLength: 8 }), async (moves) => {
        const honest = { version: 1, cutAt: undefined, lie: 'none', shift: 0 } as const;
        const server = await ctx.start(inTurn(...moves.map(moved), moved(honest)));
        ctx.target = `${ctx.target.replace(/\.\d+$/, '')}.${run++}`;
        const outcome = await ctx.fetch(server.url(), { retries: 50 });
        if (outcome.kind !== 'done') {
          expect(outcome.kind).toBe('expired');
          return;
        }
        const there = await readFile(outcome.file.path);
        const version = small.findIndex(({ content: bytes }) => bytes.equals(there));
        expect(version).not.toBe(-1);
        await expectWhole(outcome, small[version]?.content ?? Buffer.alloc(0));
      }),
      { numRuns: 30 },
    );
  });
});
