import { beforeEach, expect, it } from 'vitest';
import { asking, type Ask, type Database } from '../../../src/batch/fleet/database.ts';
import { queuedManifest, standings } from '../../../src/batch/fleet/queued-manifest.ts';
import {
  addBatch,
  addRows,
  handOutAgain,
  RowQueue,
  type NewRow,
} from '../../../src/batch/fleet/row-queue.ts';
import { hasPgBouncer } from '../../support/pgbouncer.ts';
import { openDatabase } from './database.ts';
import { describeFleet } from './place.ts';

const head = { gateway: 'http://here', concurrency: 4 };

function rows(...ids: string[]): NewRow[] {
  return ids.map((id, at) => ({
    id,
    hash: `hash of ${id}`,
    row: { index: at + 1, line: at + 2, kind: 'c', id, flags: {}, set: [], tags: [] },
  }));
}

// Through a pool where there is one.
describeFleet('rows of batches in a queue on PostgreSQL', { isPooled: hasPgBouncer }, (place) => {
  let database: Database;
  let ask: Ask;
  beforeEach(async () => {
    database = await openDatabase(place.url());
    ask = asking(database);
  });

  async function enqueue(...ids: string[]): Promise<void> {
    await addBatch(ask, { name: 'clips', head });
    await addRows(ask, 'clips', rows(...ids));
  }

  function queue(holder: string, leaseMs = 60_000, own = database): RowQueue {
    return new RowQueue(own, { holder, leaseMs });
  }

  // As if the lease of whoever has rows in hand had passed.
  async function letLeasesPass(): Promise<void> {
    await place.query(`update mgw.batch_rows set ends = now() - interval '1 second' where state = 'taken'`);
  }

  it('are there once, however often they are put in; a changed one is told and kept as it was', async () => {
    await addBatch(ask, { name: 'clips', head });
    expect(await addRows(ask, 'clips', rows('a', 'b'))).toEqual({ added: 2, changed: [] });
    const [a, b] = rows('a', 'b');
    const changed = { ...b, hash: 'another' } as NewRow;
    expect(await addRows(ask, 'clips', [a as NewRow, changed, ...rows('c')])).toEqual({
      added: 1,
      changed: ['b'],
    });
    expect(await place.query('select id, hash from mgw.batch_rows order by position')).toBe(
      'a\thash of a\nb\thash of b\nc\thash of c',
    );
  });

  it('of another gateway are refused under a name that is taken, and not handed out', async () => {
    await enqueue('a');
    const other = { name: 'clips', head: { ...head, gateway: 'http://there' } };
    await expect(addBatch(ask, other)).rejects.toMatchObject({ code: 'usage' });
    expect(await queue('x').waiting('http://there')).toEqual([]);
    expect(await queue('x').waiting('http://here')).toEqual([{ name: 'clips', head }]);
  });

  it('are handed out once each, in their order, to many at once', async () => {
    const ids = Array.from({ length: 60 }, (_, n) => `row-${n}`);
    await enqueue(...ids);
    const pooled = await openDatabase(place.url());
    const takers = ['x', 'y', 'z'].map((holder) => queue(holder, 60_000, pooled));
    const taken = await Promise.all(
      takers.map(async (taker) => {
        const own: string[] = [];
        for (let row = await taker.take('clips'); row !== undefined; row = await taker.take('clips'))
          own.push(row.id);
        return own;
      }),
    );
    expect(taken.flat().sort()).toEqual([...ids].sort());
    expect((await queuedRows()).map(({ id }) => id)).toEqual(ids);
    expect(await queue('x').waiting('http://here')).toEqual([]);
  });

  async function queuedRows(): Promise<{ id: string | undefined }[]> {
    const found: { id: string | undefined }[] = [];
    const manifest = await queuedManifest(database, 'clips');
    for await (const item of manifest?.items() ?? []) if ('row' in item) found.push({ id: item.row.id });
    return found;
  }

  it('come back from a worker that is gone, and it writes nothing to them any more', async () => {
    await enqueue('a');
    const [gone, other] = [queue('gone'), queue('other')];
    const lost = await gone.take('clips');
    expect(await other.take('clips')).toBeUndefined();
    await letLeasesPass();
    expect(await other.recover()).toEqual([]);
    const found = await other.take('clips');
    expect(found?.id).toBe('a');
    if (lost !== undefined) await gone.end(lost, 'failed');
    await gone.renew();
    expect(await place.query('select state, holder from mgw.batch_rows')).toBe('taken\tother');
  });

  it('stay with a worker that renews them', async () => {
    await enqueue('a');
    const own = queue('own');
    await own.take('clips');
    await letLeasesPass();
    await own.renew();
    expect(await queue('other').recover()).toEqual([]);
    expect(await place.query('select state, holder from mgw.batch_rows')).toBe('taken\town');
  });

  it('are set aside when two workers did not survive them, until they are handed out again', async () => {
    await enqueue('a', 'b');
    for (const expected of [[], [{ batch: 'clips', id: 'a', state: 'aside' }]]) {
      await queue('gone').take('clips');
      await letLeasesPass();
      expect(await queue('other').recover()).toEqual(expected);
    }
    const one = queue('one');
    expect((await one.take('clips'))?.id).toBe('b');
    expect(await one.take('clips')).toBeUndefined();
    expect(await standings(database, 'clips')).toEqual({
      waiting: 0,
      taken: 1,
      aside: [{ id: 'a', why: null }],
    });
    expect(await handOutAgain(ask, 'clips')).toBe(1);
    expect((await one.take('clips'))?.id).toBe('a');
  });

  it('that are given back count for no death, and wait as long as they are told to', async () => {
    await enqueue('a');
    const own = queue('own');
    for (let times = 0; times < 4; times += 1) {
      const row = await own.take('clips');
      if (row !== undefined) await own.giveBack(row, 0);
    }
    expect(await place.query('select state, lost from mgw.batch_rows')).toBe('waiting\t0');
    const row = await own.take('clips');
    if (row !== undefined) await own.giveBack(row, 3_600_000, 'the gateway was away');
    expect(await own.take('clips')).toBeUndefined();
    expect(await own.waiting('http://here')).toEqual([]);
  });
});
