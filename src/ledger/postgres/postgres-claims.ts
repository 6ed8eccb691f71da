import { randomUUID } from 'node:crypto';
import { claimName } from '../names.ts';
import type { Ledger } from '../ledger.ts';
import type { Database } from './database.ts';

type ClaimMethods = Pick<Ledger, 'claim' | 'confirm' | 'isConfirmed' | 'claimed'>;

/** Claims as rows: of any number of processes one makes the row. */
export function claimsIn(database: Database): ClaimMethods {
  const claims = database.table('claims');
  const claimed = async (name: string): Promise<string | undefined> => {
    const [row] = await database.query<{ content: string }>(`SELECT content FROM ${claims} WHERE name = $1`, [
      claimName(name),
    ]);
    return row?.content;
  };
  return {
    claimed,
    claim: async (name, content) => {
      // If the response to the first try is lost, the second finds its own token.
      const token = randomUUID();
      for (;;) {
        const [row] = await database.query<{ content: string; token: string }>(
          `WITH made AS (INSERT INTO ${claims} (name, content, token, tentative) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO NOTHING RETURNING content, token)
           SELECT content, token FROM made UNION ALL SELECT content, token FROM ${claims} WHERE name = $1`,
          [claimName(name), content, token, true],
        );
        if (row !== undefined) return row.token === token ? undefined : row.content;
        // One that was made while this statement ran is not seen by it.
      }
    },
    // `sending` is refused from a process that was found dead: if the event is not there, nothing was done.
    confirm: () => Promise.resolve(),
    isConfirmed: () => Promise.resolve(false),
  };
}
