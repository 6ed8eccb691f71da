import { examineLedger } from '../../ledger/postgres/examine.ts';
import type { StateUrl } from '../../state-url.ts';
import type { Context } from '../context.ts';
import { attempt, ok, warn, type Check } from './check.ts';

/** Whether the database of a shared ledger answers, has the tables, and keeps what it confirms. */
export function checkDatabase(url: StateUrl, { clock }: Pick<Context, 'clock'>): Promise<Check> {
  const hint = 'Nothing is submitted while this fails. "mgw state init" makes the tables.';
  return attempt('database', hint, async () => {
    const { server, version, lagMs, tripMs, warnings } = await examineLedger(url, () => clock.now());
    const [first] = warnings;
    if (first !== undefined) return warn('database', first, '"mgw state check" lists all that it found.');
    const lag = `its clock ${(Math.abs(lagMs) / 1000).toFixed(1)} s ${lagMs < 0 ? 'ahead' : 'behind'}`;
    const detail = `PostgreSQL ${server.split(' ')[0] ?? ''}, tables of version ${version}, ${Math.round(tripMs)} ms a statement, ${lag}`;
    return ok('database', detail);
  });
}
