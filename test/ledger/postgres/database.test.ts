import { EventEmitter } from 'node:events';
import pg from 'pg';
import { describe, expect, it, vi } from 'vitest';
import { MgwError } from '../../../src/errors.ts';
import { Database, DatabaseLost, isDuplicate } from '../../../src/ledger/postgres/database.ts';
import { parseStateUrl } from '../../../src/state-url.ts';

const url = parseStateUrl('postgres://mgw:hunter2@127.0.0.1/d');

/** Returns an error as thrown by PostgreSQL or by the connection. */
function errorOf(code: string | undefined, message = 'no'): Error {
  return Object.assign(new Error(message), code === undefined ? {} : { code });
}

/** Returns a database whose statements return the given results in order. Further statements return the last result. */
function answering(...results: (Error | object[])[]): {
  database: Database;
  tries: () => number;
  pauses: number[];
} {
  const pauses: number[] = [];
  let [now, tries] = [0, 0];
  const clock = {
    monotonic: () => now,
    sleep: (ms: number) => {
      pauses.push(ms);
      now += ms;
      return Promise.resolve();
    },
  };
  const query = (() => {
    const result = results[Math.min(tries, results.length - 1)] ?? [];
    tries += 1;
    return result instanceof Error
      ? Promise.reject(result)
      : Promise.resolve([{ rows: [] }, { rows: result }]);
  }) as () => never;
  vi.spyOn(pg.Pool.prototype, 'query').mockImplementation(query);
  return { database: new Database(url, clock), tries: () => tries, pauses };
}

describe('a statement', () => {
  it.each([
    ['08006', 'no'],
    ['57P01', 'no'],
    ['57P03', 'no'],
    ['53300', 'no'],
    ['40001', 'no'],
    ['40P01', 'no'],
    ['25006', 'no'],
    ['ECONNREFUSED', 'no'],
    ['ENOTFOUND', 'no'],
    ['EPIPE', 'no'],
    [undefined, 'Connection terminated unexpectedly'],
    [undefined, 'timeout exceeded when trying to connect'],
    [undefined, 'There was an error establishing an SSL connection'],
  ])('is repeated after a temporary error: %s, %s', async (code, message) => {
    const { database, tries } = answering(errorOf(code, message), errorOf(code, message), [{ a: 1 }]);
    expect(await database.query('SELECT')).toEqual([{ a: 1 }]);
    expect(tries()).toBe(3);
  });

  it('is repeated at growing intervals until the connect_timeout of the URL has passed', async () => {
    vi.stubEnv('PGPASSWORD', 'sesame');
    const { database, tries, pauses } = answering(errorOf('ECONNREFUSED', 'of hunter2, sesame.'));
    vi.unstubAllEnvs();
    const error: unknown = await database.query('SELECT').catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(DatabaseLost);
    expect(error).toMatchObject({ exitCode: 6, retry: 'safe' });
    expect((error as Error).message).toMatch(/does not respond: of ((?!hunter2|sesame).)*\.$/);
    expect(pauses.slice(0, 7)).toEqual([25, 50, 100, 200, 400, 800, 1000]);
    const waited = pauses.reduce((sum, ms) => sum + ms, 0);
    expect(waited).toBeLessThanOrEqual(url.responseTimeoutMs);
    expect(waited + 1000).toBeGreaterThan(url.responseTimeoutMs);
    expect(tries()).toBe(pauses.length + 1);
  });

  it('is not repeated after the database is closed', async () => {
    const { database, tries } = answering(errorOf('ECONNREFUSED'));
    const end = vi.spyOn(pg.Pool.prototype, 'end');
    await database.close();
    expect(end).toHaveBeenCalledTimes(1);
    await expect(database.query('SELECT')).rejects.toBeInstanceOf(DatabaseLost);
    expect(tries()).toBe(1);
  });

  it.each<[string | undefined, string, object]>([
    ['42P01', 'no', { code: 'config', next: ['mgw', 'state', 'init'] }],
    ['3F000', 'no', { code: 'config', next: ['mgw', 'state', 'init'] }],
    ['42703', 'no', { code: 'config', next: ['mgw', 'state', 'init'] }],
    ['28P01', 'no', { code: 'config', message: expect.stringContaining('PGPASSWORD') as string }],
    [
      undefined,
      'client password must be a string',
      { code: 'config', message: expect.stringContaining('none was set') as string },
    ],
    [
      '28000',
      'no',
      { code: 'config', message: expect.stringMatching(/^mgw cannot use the database .*: no\.$/) as string },
    ],
    ['3D000', 'no', { code: 'config' }],
    ['42501', 'no', { code: 'config' }],
    ['0A000', 'no', { code: 'config' }],
    ['CERT_HAS_EXPIRED', 'no', { code: 'config' }],
    [undefined, 'The server does not support SSL connections', { code: 'config' }],
    ['22021', 'no', { code: 'local_io', retry: 'safe' }],
    [undefined, 'no', { code: 'local_io', retry: 'safe' }],
    [undefined, '', { code: 'local_io', message: expect.stringContaining('no reason was given') as string }],
  ])(
    'is not repeated if it is refused (%s, %s), and the error suggests a solution',
    async (code, text, error) => {
      const { database, tries } = answering(errorOf(code, text));
      await expect(database.query('SELECT')).rejects.toMatchObject(error);
      expect(tries()).toBe(1);
    },
  );

  it('fails with the reason if the database does not respond', async () => {
    const aggregate = Object.assign(new AggregateError([errorOf('ECONNREFUSED', 'refused')]), {
      code: 'ECONNREFUSED',
    });
    const causes: [Error, string][] = [
      [aggregate, 'respond: refused.'],
      [Object.assign(new AggregateError([], ''), { code: 'ECONNRESET' }), 'respond: ECONNRESET.'],
      [errorOf('ECONNRESET', ''), 'respond: ECONNRESET.'],
    ];
    for (const [cause, text] of causes)
      await expect(answering(cause).database.query('SELECT')).rejects.toThrow(text);
  });
});

describe('a check for transactions', () => {
  /**
   * Performs the check on a connection that refuses the statement `refused`, if set. Returns the connection's
   * statements, and whether it was released as broken.
   */
  async function check(
    database: Database,
    refused?: string,
  ): Promise<{ works: boolean; statements: string[]; released: unknown[] }> {
    const [statements, released] = [[] as string[], [] as unknown[]];
    const client = {
      query: (text: string) => {
        statements.push(text);
        return text === refused ? Promise.reject(errorOf('0A000')) : Promise.resolve();
      },
      release: (isBroken?: boolean) => released.push(isBroken),
    };
    vi.spyOn(pg.Pool.prototype, 'connect').mockImplementation((() => Promise.resolve(client)) as () => never);
    return { works: await database.supportsTransactions(), statements, released };
  }

  it('ends its transaction, so that the connection can be reused', async () => {
    expect(await check(answering([]).database)).toEqual({
      works: true,
      statements: ['BEGIN', 'ROLLBACK'],
      released: [undefined],
    });
  });

  it('never reuses a connection after a failed transaction', async () => {
    for (const refused of ['BEGIN', 'ROLLBACK'])
      expect(await check(answering([]).database, refused)).toMatchObject({ works: false, released: [true] });
  });

  it('fails if the database does not respond after a failed transaction', async () => {
    const { database } = answering(errorOf('ECONNREFUSED'));
    await expect(check(database, 'BEGIN')).rejects.toBeInstanceOf(DatabaseLost);
  });
});

it('a broken idle connection causes no error', async () => {
  await answering([]).database.query('SELECT');
  const pool: unknown = vi.spyOn(pg.Pool.prototype, 'query').mock.contexts.at(-1);
  if (!(pool instanceof EventEmitter)) throw new Error('no statement was sent');
  expect(() => pool.emit('error', new Error('gone'))).not.toThrow();
});

describe('isDuplicate', () => {
  it('recognizes a unique violation, even as the cause of an MgwError', () => {
    const duplicate = errorOf('23505');
    expect(isDuplicate(duplicate)).toBe(true);
    expect(isDuplicate(new MgwError('local_io', 'no', { cause: duplicate }))).toBe(true);
    for (const other of [errorOf('23503'), new MgwError('local_io', 'no'), undefined])
      expect(isDuplicate(other)).toBe(false);
  });
});

describe('combined calls', () => {
  /**
   * Returns a function that doubles numbers and refuses negative numbers, and the numbers that were requested together.
   */
  function doubling(): { double: (key: number) => Promise<number | undefined>; calls: number[][] } {
    const calls: number[][] = [];
    const double = new Database(url).combine((keys: number[]) => {
      calls.push(keys);
      if (keys.some((key) => key < 0)) return Promise.reject(new Error(`refused ${keys.join()}`));
      return Promise.resolve(new Map(keys.filter((key) => key < 100).map((key) => [key, 2 * key])));
    });
    return { double, calls };
  }

  it('share a statement if they are made at the same time, and each call gets its own result', async () => {
    const { double, calls } = doubling();
    expect(await Promise.all([1, 2, 3, 100].map(double))).toEqual([2, 4, 6, undefined]);
    expect(await double(4)).toBe(8);
    expect(calls).toEqual([[1, 2, 3, 100], [4]]);
  });

  it('wait for a running call, and then share a statement', async () => {
    const database = new Database(url);
    const running = { now: 0, max: 0 };
    const calls: string[][] = [];
    const ask = async (keys: string[]): Promise<Map<string, string>> => {
      running.now += 1;
      running.max = Math.max(running.max, running.now);
      calls.push(keys);
      await new Promise((resolve) => setImmediate(resolve));
      running.now -= 1;
      return new Map(keys.map((key) => [key, key]));
    };
    const [one, other] = [database.combine(ask), database.combine(ask)];
    const first = one('a');
    await new Promise((resolve) => process.nextTick(resolve));
    await Promise.resolve();
    expect(await Promise.all([first, one('b'), other('c'), one('d'), other('e')])).toEqual([
      ...['a', 'b', 'c', 'd', 'e'],
    ]);
    expect([running.max, calls.flat().length]).toEqual([1, 5]);
    expect(calls.length).toBeLessThanOrEqual(3);
  });

  it('are made separately if the database refuses them together, so no call fails because of another call', async () => {
    const { double, calls } = doubling();
    const ran = await Promise.allSettled([1, -2, 3].map(double));
    expect(ran.map((each) => (each.status === 'fulfilled' ? each.value : String(each.reason)))).toEqual([
      2,
      'Error: refused -2',
      6,
    ]);
    expect(calls).toEqual([[1, -2, 3], [1], [-2], [3]]);
    expect(await double(4)).toBe(8);
  });

  it('are not repeated if the database is unavailable, or if there is only one call', async () => {
    let callCount = 0;
    const connectionLost = new DatabaseLost('unreachable', 'gone', {});
    const lost = new Database(url).combine((): Promise<Map<number, number>> => {
      callCount += 1;
      return Promise.reject(connectionLost);
    });
    const ran = await Promise.allSettled([1, 2].map(lost));
    expect(ran.map((each) => each.status === 'rejected' && each.reason === connectionLost)).toEqual([
      true,
      true,
    ]);
    expect(callCount).toBe(1);
    const { double, calls: refused } = doubling();
    await expect(double(-1)).rejects.toThrow('refused -1');
    expect(refused).toEqual([[-1]]);
  });
});
