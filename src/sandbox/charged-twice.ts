import type { BillLine } from './bill.ts';
import { totalOf } from './bill.ts';
import type { Finding } from './finding.ts';
import { groupBy } from './group-by.ts';
import type { JournalEntry } from './journal.ts';

/**
 * Pays twice for one thing: the same request charged again, or, after an answer was lost, another request that asks
 * for the same in other words. A charge that was given back is no reason not to try again.
 */
export function chargedTwice(bill: readonly BillLine[], journal: readonly JournalEntry[]): Finding[] {
  const kept = bill.filter(({ refunded }) => !refunded);
  const told = new Set(journal.flatMap((entry) => (entry.kind === 'told' ? [entry.task] : [])));
  return [...repeats(kept), ...variants(kept, told)];
}

/** The same area, key and body. */
function repeats(bill: readonly BillLine[]): Finding[] {
  const intents = groupBy(bill, ({ area, key, fingerprint }) => `${area} ${key} ${fingerprint}`);
  return [...intents.values()]
    .filter(({ length }) => length > 1)
    .map((lines) => found(lines, `The same request was charged ${lines.length} times`));
}

/**
 * The same key and prompt, text or input, whatever else differs (a default left out, a fresh seed, another model),
 * where the first of these requests got no answer. Where it got one, the client wants several takes.
 */
function variants(bill: readonly BillLine[], told: ReadonlySet<string>): Finding[] {
  const wishes = groupBy(
    bill.filter(({ subject }) => subject !== undefined),
    ({ key, area, subject }) => `${key} ${kindOf(area)} ${subject ?? ''}`,
  );
  return [...wishes.values()].flatMap((lines) => {
    const [first] = lines;
    const differ = new Set(lines.map(({ fingerprint }) => fingerprint)).size > 1;
    if (first === undefined || told.has(first.task) || !differ) return [];
    return [
      found(
        lines,
        `After the answer to ${first.task} was lost, the same was asked for in a request that differs: charged ${lines.length} times`,
      ),
    ];
  });
}

/** The three video protocols are three ways to one thing. */
function kindOf(area: BillLine['area']): string {
  return area === 'a' || area === 'b' || area === 'c' ? 'video' : area;
}

function found(lines: readonly BillLine[], message: string): Finding {
  return {
    kind: 'charged-twice',
    tasks: lines.map(({ task }) => task),
    message: `${message}, ${totalOf(lines)} credits in all.`,
  };
}
