import { randomUUID } from 'node:crypto';
import { claimName } from '../claim-name.ts';
import type { Ledger } from '../ledger.ts';
import type { Database } from './database.ts';

type ClaimMethods = Pick<Ledger, 'claim' | 'confirm' | 'isTentative' | 'claimed' | 'release'>;

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
    claim: async (name, content, isTentative = false) => {
      // Where the answer to the first try is lost, the second finds its own token.
      const token = randomUUID();
      for (;;) {
        const [row] = await database.query<{ content: string; token: string }>(
          `WITH made AS (INSERT INTO ${claims} (name, content, token, tentative) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO NOTHING RETURNING content, token)
           SELECT content, token FROM made UNION ALL SELECT content, token FROM ${claims} WHERE name = $1`,
          [claimName(name), content, token, isTentative],
        );
        if (row !== undefined) return row.token === token ? undefined : row.content;
        // One that was made while this statement ran is not seen by it.
      }
    },
    // `sending` is refused from whoever was found dead: without it, a tentative claim of the dead shows that nothing was sent.
    confirm: () => Promise.resolve(),
    isTentative: async (name) => {
      const rows = await database.query(`SELECT FROM ${claims} WHERE name = $1 AND tentative`, [
        claimName(name),
      ]);
      return rows.length > 0;
    },
    release: async (name) => {
      await database.query(`DELETE FROM ${claims} WHERE name = $1`, [claimName(name)]);
    },
  };
}
