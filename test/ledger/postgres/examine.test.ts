import { expect, it } from 'vitest';
import { examineLedger, makeLedger } from '../../../src/ledger/postgres/examine.ts';
import { parseStateUrl } from '../../../src/state-url.ts';
import { onEnd } from '../../support/clean-ups.ts';
import { hasPgBouncer, PgBouncer } from '../../support/pgbouncer.ts';
import { now } from '../conformance.ts';
import { describePostgres, type PostgresPlace } from './place.ts';

describePostgres('the look at a database', (newPlace) => {
  async function warnings({ server, database }: PostgresPlace, port?: number): Promise<string[]> {
    return (await examineLedger(parseStateUrl(server.url(database, port)), () => now)).warnings;
  }

  it.skipIf(!hasPgBouncer).each([
    ['transaction', false],
    ['session', false],
    ['statement', true],
  ] as const)('sees what breaks transactions: a pool of mode %s', async (mode, isWarned) => {
    const place = await newPlace();
    await place.open();
    const pool = await PgBouncer.open(place.server.port, mode);
    onEnd(() => pool.close());
    const found = await warnings(place, pool.port);
    expect(found.some((text) => text.includes('pool_mode = transaction'))).toBe(isWarned);
  });

  it.each([
    [1, 'No released mgw made such tables'],
    [99, 'Update mgw'],
  ])('refuses tables of version %i, and leaves them as they are', async (version, text) => {
    const place = await newPlace();
    await place.open();
    await place.server.query(`UPDATE mgw.meta SET version = ${version}`, place.database);
    const url = parseStateUrl(place.server.url(place.database));
    const refusal = { code: 'config', message: expect.stringContaining(text) as string };
    await expect(examineLedger(url, () => now)).rejects.toMatchObject(refusal);
    await expect(makeLedger(url)).rejects.toMatchObject(refusal);
  });

  it('sees a server that would lose what it confirmed, and a clock that differs', async () => {
    const place = await newPlace();
    await place.open();
    expect(await warnings(place)).toEqual([
      expect.stringContaining('fsync is off'),
      expect.stringContaining('The clocks differ'),
    ]);
  });
});
