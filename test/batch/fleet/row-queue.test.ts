import { beforeEach, expect, it } from 'vitest';
import {
  queuedManifest,
  queueCounts,
  removeRows,
  requeueRows,
  rowsInState,
} from '../../../src/batch/fleet/queued-row.ts';
import { addBatch, addRows, RowQueue, type NewRow } from '../../../src/batch/fleet/row-queue.ts';
import { hasPgBouncer } from '../../support/pgbouncer.ts';
import { describeFleet } from './place.ts';
import { openDatabase, processIn, type TestProcess } from './processes.ts';

const head = { gateway: 'http://here', concurrency: 4 };

function rows(...ids: string[]): NewRow[] {
  return ids.map((id, at) => ({
    id,
    hash: `hash of ${id}`,
    row: { index: at + 1, line: at + 2, kind: 'c' as const, id, body: {}, tags: [] },
  }));
}

// Connects through a pool if PgBouncer is installed.
describeFleet('on PostgreSQL,', { isPooled: hasPgBouncer }, (place) => {
  let one: TestProcess;
  let other: TestProcess;
  beforeEach(async () => {
    const database = await openDatabase(place.url());
    [one, other] = [await processIn(database), await processIn(database)];
  });

  async function enqueue(...ids: string[]): Promise<void> {
    await addBatch(one.query, { name: 'clips', head });
    await addRows(one.query, 'clips', rows(...ids));
  }

  it('queued rows are added once, even if they are enqueued repeatedly, and are reported but not updated if they have changed', async () => {
    await addBatch(one.query, { name: 'clips', head });
    expect(await addRows(one.query, 'clips', rows('a', 'b'))).toEqual({ added: 2, changed: [] });
    const [a, b] = rows('a', 'b');
    const changed = { ...b, hash: 'another' } as NewRow;
    expect(await addRows(one.query, 'clips', [a as NewRow, changed, ...rows('c')])).toEqual({
      added: 1,
      changed: ['b'],
    });
    expect(await place.query('select id, hash from mgw.batch_rows order by position')).toBe(
      'a\thash of a\nb\thash of b\nc\thash of c',
    );
  });

  it('waiting rows are removed from the queue, unless a worker claimed them after they were listed', async () => {
    await enqueue('kept', 'claimed', 'returned', 'removed');
    const rows = await rowsInState(one.query, 'clips', 'waiting', ['kept']);
    expect(rows.map(({ id }) => id)).toEqual(['claimed', 'returned', 'removed']);
    await place.query(`update mgw.batch_rows set state = 'taken' where id in ('claimed', 'returned')`);
    await place.query(`update mgw.batch_rows set state = 'waiting' where id = 'returned'`);
    expect(await removeRows(one.query, 'clips', rows)).toBe(1);
    expect(await place.query('select id from mgw.batch_rows order by position')).toBe(
      'kept\nclaimed\nreturned',
    );
  });

  it('queued rows are refused if the batch name exists with a different gateway, and are assigned only to workers for their gateway', async () => {
    await enqueue('a');
    const other = { name: 'clips', head: { ...head, gateway: 'http://there' } };
    await expect(addBatch(one.query, other)).rejects.toMatchObject({ code: 'usage' });
    expect(await new RowQueue(one).availableBatches('http://there')).toEqual([]);
    expect(await new RowQueue(one).availableBatches('http://here')).toEqual([{ name: 'clips', head }]);
    // The same gateway.
    expect(await new RowQueue(one).availableBatches('http://HERE')).toEqual([{ name: 'clips', head }]);
    expect(await addBatch(one.query, { name: 'clips', head: { ...head, gateway: 'http://HERE' } })).toEqual(
      head,
    );
  });

  it('queued rows are assigned once each, in order, to many concurrent workers', async () => {
    const ids = Array.from({ length: 60 }, (_, n) => `row-${n}`);
    await enqueue(...ids);
    const third = await processIn(await openDatabase(place.url()));
    const takers = [one, other, third].map((each) => new RowQueue(each));
    const claimed = await Promise.all(
      takers.map(async (taker) => {
        const own: string[] = [];
        for (let rows = await taker.claim('clips', 4); rows.length > 0; rows = await taker.claim('clips', 4))
          own.push(...rows.map(({ id }) => id));
        return own;
      }),
    );
    expect(claimed.flat().sort()).toEqual([...ids].sort());
    expect((await queuedRows()).map(({ id }) => id)).toEqual(ids);
    expect(await takers[0]?.availableBatches('http://here')).toEqual([]);
  });

  async function queuedRows(): Promise<{ id: string | undefined }[]> {
    const found: { id: string | undefined }[] = [];
    const manifest = await queuedManifest(one.query, 'clips');
    for await (const item of manifest?.items() ?? []) if ('row' in item) found.push({ id: item.row.id });
    return found;
  }

  it('queued rows return to the queue when their worker loses its lease, and that worker can no longer change them', async () => {
    await enqueue('a');
    const [deadQueue, nextQueue] = [new RowQueue(one), new RowQueue(other)];
    const [lost] = await deadQueue.claim('clips', 1);
    expect(await nextQueue.recover()).toEqual([]);
    expect(await nextQueue.claim('clips', 1)).toEqual([]);
    await one.die();
    expect(await nextQueue.recover()).toEqual([]);
    expect(await new RowQueue(one).claim('clips', 1)).toEqual([]);
    const [found] = await nextQueue.claim('clips', 1);
    expect(found?.id).toBe('a');
    if (lost !== undefined) await deadQueue.recordEnd(lost, 'failed');
    if (lost !== undefined) await deadQueue.returnToQueue(lost, 0);
    expect(await place.query('select state, lease from mgw.batch_rows')).toBe(`taken\t${other.id}`);
  });

  it('queued rows are not claimed again by a worker that has not released them under its earlier lease', async () => {
    await enqueue('a');
    let { id } = one;
    const own = new RowQueue({ ...one, lease: () => Promise.resolve(id) });
    const rows = await own.claim('clips', 1);
    const isOwn = (): Promise<boolean[]> => Promise.all(rows.map((row) => own.isOwn(row)));
    expect(await isOwn()).toEqual([true]);
    await one.die();
    ({ id } = other);
    await own.recover();
    expect([await isOwn(), await own.claim('clips', 1)]).toEqual([[false], []]);
    for (const row of rows) await own.returnToQueue(row, 0);
    expect(await own.claim('clips', 1)).toMatchObject([{ id: 'a', lease: other.id }]);
    expect(await place.query('select lost from mgw.batch_rows')).toBe('0');
  });

  it('queued rows can be claimed again by a worker that has lost track of them', async () => {
    await enqueue('a');
    const own = new RowQueue(one);
    const [row] = await own.claim('clips', 1);
    expect(await own.availableBatches('http://here')).toEqual([]);
    if (row !== undefined) own.drop(row);
    expect(await own.availableBatches('http://here')).toHaveLength(1);
    expect((await own.claim('clips', 1))[0]?.id).toBe('a');
    expect(await place.query('select lost from mgw.batch_rows')).toBe('0');
  });

  it('queued rows are quarantined after five workers die while running them, until they are released', async () => {
    await enqueue('a', 'b');
    const database = await openDatabase(place.url());
    for (const expected of [[], [], [], [], [{ batch: 'clips', id: 'a', state: 'quarantined' }]]) {
      const deadProcess = await processIn(database);
      await new RowQueue(deadProcess).claim('clips', 1);
      await deadProcess.die();
      expect(await new RowQueue(other).recover()).toEqual(expected);
    }
    const own = new RowQueue(one);
    expect((await own.claim('clips', 1))[0]?.id).toBe('b');
    expect(await own.claim('clips', 1)).toEqual([]);
    expect(await queueCounts(one.query, 'clips')).toEqual({
      waiting: 0,
      taken: 1,
      quarantined: [{ id: 'a', why: null }],
      returned: [],
      unpaid: [],
    });
    expect(await requeueRows(one.query, 'clips')).toBe(1);
    expect((await own.claim('clips', 1))[0]?.id).toBe('a');
  });

  it('rows that ended unpaid are listed with the reason until the user requeues them', async () => {
    await enqueue('a', 'b', 'c', 'd', 'e');
    const own = new RowQueue(one);
    const outcomes: Record<string, string> = { a: 'bad', b: 'rejected', c: 'done', d: 'unknown' };
    for (const row of await own.claim('clips', 5))
      if (row.id === 'e') await own.returnToQueue(row, 1000, 'why e');
      else await own.recordEnd(row, outcomes[row.id] ?? '', `why ${row.id}`);
    expect(await queueCounts(one.query, 'clips')).toMatchObject({
      returned: [{ id: 'e', why: 'why e' }],
      unpaid: [
        { id: 'a', why: 'why a' },
        { id: 'b', why: 'why b' },
      ],
    });
    expect(await requeueRows(one.query, 'clips')).toBe(3);
    expect(await queueCounts(one.query, 'clips')).toMatchObject({ waiting: 3, returned: [], unpaid: [] });
  });

  it('rows that wait for their retry are available immediately after the user enqueues them again', async () => {
    await enqueue('a');
    const own = new RowQueue(one);
    for (const again of [() => enqueue('a'), () => requeueRows(one.query, 'clips')]) {
      for (const row of await own.claim('clips', 1))
        await own.returnToQueue(row, 60_000, 'the budget is spent');
      expect(await own.claim('clips', 1)).toEqual([]);
      await again();
      expect(await queueCounts(one.query, 'clips')).toMatchObject({ waiting: 1, returned: [] });
    }
    expect(await own.claim('clips', 1)).toHaveLength(1);
  });

  it('enqueuing a file again requeues rows that ended as unknown or running, and --again those that ended as running, but neither requeues a row that failed', async () => {
    await enqueue('unknown', 'running', 'failed');
    const states = (): Promise<string> =>
      place.query('select id, state from mgw.batch_rows order by position');
    const own = new RowQueue(one);
    for (const row of await own.claim('clips', 3)) await own.recordEnd(row, row.id);
    expect(await requeueRows(one.query, 'clips')).toBe(1);
    expect(await states()).toBe('unknown\tended\nrunning\twaiting\nfailed\tended');
    await place.query(`update mgw.batch_rows set state = 'ended'`);
    await enqueue('unknown', 'running', 'failed');
    expect(await states()).toBe('unknown\twaiting\nrunning\twaiting\nfailed\tended');
  });

  it.each(['before', 'after'])(
    'queued rows are checked again only once if their first worker resumes %s another worker finds them in doubt',
    async (when) => {
      await enqueue('a');
      const [own, others] = [new RowQueue(one), new RowQueue(other)];
      const [row] = await own.claim('clips', 1);
      await one.die();
      await others.recover();
      const wake = async (): Promise<void> => row && own.returnToQueue(row, 0);
      const findInDoubt = async (): Promise<string> => {
        const [claimedRow] = await others.claim('clips', 1);
        if (when === 'before') await wake();
        if (claimedRow !== undefined) await others.recordEnd(claimedRow, 'unknown');
        if (when === 'after') await wake();
        return place.query('select state from mgw.batch_rows');
      };
      expect([await findInDoubt(), await findInDoubt()]).toEqual(['waiting', 'ended']);
    },
  );

  it('the queue does not count a stopped or disconnected worker as dead once the worker resumes', async () => {
    await enqueue('a');
    const own = new RowQueue(one);
    const [row] = await own.claim('clips', 1);
    await place.query('update mgw.batch_rows set lost = 4');
    await one.die();
    expect(await new RowQueue(other).recover()).toHaveLength(1);
    if (row !== undefined) await own.returnToQueue(row, 0);
    expect(await place.query('select state, lost from mgw.batch_rows')).toBe('waiting\t4');
    const [next] = await new RowQueue(other).claim('clips', 1);
    if (row !== undefined) await own.recordEnd(row, 'unknown');
    if (next !== undefined) await new RowQueue(other).recordEnd(next, 'done');
    expect(await place.query('select state, outcome from mgw.batch_rows')).toBe('ended\tdone');
  });

  it('the queue does not count a worker as dead if it returns a row, and delays the row as long as requested', async () => {
    await enqueue('a');
    const own = new RowQueue(one);
    for (let times = 0; times < 4; times += 1) {
      const [row] = await own.claim('clips', 1);
      if (row !== undefined) await own.returnToQueue(row, 0);
    }
    expect(await place.query('select state, lost from mgw.batch_rows')).toBe('waiting\t0');
    const [row] = await own.claim('clips', 1);
    if (row !== undefined) await own.returnToQueue(row, 3_600_000, 'the gateway was away');
    expect(await own.claim('clips', 1)).toEqual([]);
    const [{ retryMs, ...clips } = {}] = await new RowQueue(other).availableBatches('http://here');
    expect(clips).toEqual({ name: 'clips', head });
    expect(Math.ceil((retryMs ?? 0) / 60_000)).toBe(60);
    await enqueue('b');
    expect(await own.availableBatches('http://here')).toEqual([{ name: 'clips', head }]);
  });
});
