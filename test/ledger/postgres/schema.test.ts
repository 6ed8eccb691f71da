import { describe, expect, it, vi } from 'vitest';
import { Database } from '../../../src/ledger/postgres/database.ts';
import { createTables, identityOf } from '../../../src/ledger/postgres/schema.ts';
import { parseStateUrl } from '../../../src/state-url.ts';

/**
 * Simulates a database with the given encoding, in which other roles own the objects `foreignNames`. Records the
 * statements.
 */
function open(
  encoding: string,
  foreignNames: string | null,
  url = 'postgres://127.0.0.1/d',
): { database: Database; statements: string[] } {
  const [database, statements] = [new Database(parseStateUrl(url)), [] as string[]];
  vi.spyOn(database, 'query').mockImplementation((text) => {
    statements.push(text);
    const isCheck = text.includes('server_encoding');
    return Promise.resolve([isCheck ? { encoding, foreign_names: foreignNames } : {}] as never[]);
  });
  return { database, statements };
}

describe('a ledger', () => {
  it.each([
    ['a', 'mgw: a. Make'],
    ['a, b, c, d', 'mgw: a, b, c, d. Make'],
    ['a, b, c, d, e', 'mgw: a, b, c, and 2 others. Make'],
  ])('is neither read nor created if another role owns %s', async (names, text) => {
    const { database, statements } = open('UTF8', names);
    const refusal = { code: 'config', message: expect.stringContaining(text) as string };
    await expect(identityOf(database)).rejects.toMatchObject(refusal);
    await expect(createTables(database)).rejects.toMatchObject(refusal);
    expect(statements).toHaveLength(2);
  });

  it.each([
    ['postgres://127.0.0.1/d', ['-h', '127.0.0.1'], 'd_utf8'],
    [
      'postgres://a%40b:secret@db.example:6432/d%20e',
      ['-h', 'db.example', '-p', '6432', '-U', 'a@b'],
      'd e_utf8',
    ],
    ['postgres:///d', [], 'd_utf8'],
  ])(
    'in %s is neither read nor created if the encoding cannot represent every text',
    async (url, place, name) => {
      const { database, statements } = open('LATIN1', null, url);
      const refusal = { code: 'config', next: ['createdb', ...place, '-E', 'UTF8', '-T', 'template0', name] };
      await expect(identityOf(database)).rejects.toMatchObject(refusal);
      await expect(createTables(database)).rejects.toMatchObject(refusal);
      expect(statements).toHaveLength(2);
    },
  );
});
