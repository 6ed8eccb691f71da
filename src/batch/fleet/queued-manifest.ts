import type { Item, LeftOut, Manifest } from '../manifest/manifest.ts';
import type { Row } from '../manifest/row.ts';
import { asking, type Database } from './database.ts';
import type { QueuedHead } from './row-queue.ts';

/** What the queue knows of the rows of a batch that have not ended. */
export interface Standings {
  waiting: number;
  taken: number;
  /** Rows that two workers did not survive. */
  aside: { id: string; why: string | null }[];
}

/** Rows that are asked for at a time. */
const page = 500;

/** The manifest of a batch that was enqueued, as the queue has it; undefined where there is none of that name. */
export async function queuedManifest(database: Database, name: string): Promise<Manifest | undefined> {
  const [found] = await asking(database)<{ head: string }>('select head from {batches} where name = $1', [
    name,
  ]);
  if (found === undefined) return undefined;
  const { output, concurrency, budget } = JSON.parse(found.head) as QueuedHead;
  const head = {
    name,
    concurrency: String(concurrency),
    ...(output && { output }),
    ...(budget && { budget }),
  };
  const items = async function* (isLeftOut?: LeftOut): AsyncGenerator<Item> {
    let after = '0';
    let index = 0;
    for (;;) {
      const rows = await asking(database)<{ content: string; place: string }>(
        `select content, position::text as place from {batch_rows} where batch = $1 and position > $2::bigint order by position limit ${page}`,
        [name, after],
      );
      for (const { content } of rows) {
        index += 1;
        // Two files that were enqueued under one name both have a first row.
        const row = { ...(JSON.parse(content) as Row), index };
        const record = { line: row.line, fields: [] };
        if ((await isLeftOut?.(record, index)) !== true) yield { row, record };
      }
      const last = rows.at(-1);
      if (last === undefined) return;
      after = last.place;
    }
  };
  return { path: name, head, defaults: [], items };
}

/** Where the rows of a batch stand that were handed out, or wait for it; undefined where it was never enqueued. */
export async function standings(database: Database, name: string): Promise<Standings | undefined> {
  const counts = await asking(database)<{ state: string; count: number }>(
    'select state, count(*)::int as count from {batch_rows} where batch = $1 group by state',
    [name],
  );
  if (counts.length === 0) return undefined;
  const count = (state: string): number => counts.find((each) => each.state === state)?.count ?? 0;
  const aside = await asking(database)<Standings['aside'][number]>(
    `select id, why from {batch_rows} where batch = $1 and state = 'aside' order by position limit 1000`,
    [name],
  );
  return { waiting: count('waiting'), taken: count('taken'), aside };
}
