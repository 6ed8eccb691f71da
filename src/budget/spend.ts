import {
  add,
  decimalOf,
  formatDecimal,
  multiply,
  parseDecimal,
  shifted,
  zero,
  type Decimal,
} from '../decimal.ts';
import type { Job, RecordedEvent } from '../job.ts';
import { at, type Json } from '../json.ts';
import { chargesOf, type AttemptCharge } from './charges.ts';

/** What one attempt cost, or may have cost. */
export interface Expense {
  /** When it was sent, ISO 8601 in UTC. */
  at: string;
  job: string;
  model?: string;
  /** The `--key`. */
  key?: string;
  budgets: readonly string[];
  /** Absent where no price was known. */
  amount?: Decimal;
  /**
   * `failed`: the task failed, and gateways give such charges back or not. `doubt`: nobody knows whether the task
   * exists.
   */
  kind: 'spent' | 'failed' | 'doubt';
}

/** What a job's attempts cost; refused ones cost nothing and are left out. */
export function expensesOf(job: Job, events: readonly (RecordedEvent | undefined)[]): Expense[] {
  const charges = chargesOf(events).filter(({ fate }) => fate !== 'none');
  // The first task that was accepted is the one that the job follows.
  const followed = charges.find(({ fate }) => fate === 'accepted');
  return charges.map((charge) => ({
    at: charge.at,
    job: job.id,
    model: job.model,
    key: job.key,
    budgets: charge.budgets ?? [],
    amount: charge === followed ? settledAmount(job, charge) : amountOf(charge),
    kind: charge.fate !== 'accepted' ? 'doubt' : charge === followed && mayBeFree(job) ? 'failed' : 'spent',
  }));
}

// Speech that broke off was charged, and so was any of which audio came (design 8).
function mayBeFree({ protocol, state, error, details }: Job): boolean {
  if (state !== 'failed') return false;
  if (protocol !== 'tts') return true;
  return error?.code !== 'speech_incomplete' && at(details as Json, 'audio_bytes') === undefined;
}

// What the gateway counted is what it charges for.
function settledAmount({ usage }: Job, charge: AttemptCharge): Decimal | undefined {
  const words = at(usage as Json, 'text_words');
  const rate = charge.cost?.per_10k_characters;
  if (rate === undefined || typeof words !== 'number' || !Number.isSafeInteger(words) || words < 0)
    return amountOf(charge);
  return shifted(multiply(parseDecimal(rate), decimalOf(words)), 4);
}

function amountOf({ cost }: AttemptCharge): Decimal | undefined {
  return cost === undefined ? undefined : parseDecimal(cost.at_most);
}

/** What expenses can be added up by. */
export const spendGroups = ['model', 'day', 'batch', 'key', 'budget'] as const;
export type SpendGroup = (typeof spendGroups)[number];

/** The groups that an expense belongs to; '' for none. */
export function groupsOf({ at: when, model, key, budgets }: Expense, by: SpendGroup): readonly string[] {
  switch (by) {
    case 'model':
      return [model ?? ''];
    case 'day':
      return [when.slice(0, 10)];
    case 'batch':
      return [key?.includes('/') ? (key.split('/')[0] ?? '') : ''];
    case 'key':
      return [key ?? ''];
    case 'budget':
      return budgets.length === 0 ? [''] : budgets;
  }
}

/** A sum of expenses; an unknown price makes it unknown. */
export class Sum {
  charges = 0;
  unpriced = 0;
  known = zero;

  add(amount: Decimal | undefined): void {
    this.charges += 1;
    if (amount === undefined) this.unpriced += 1;
    else this.known = add(this.known, amount);
  }

  /** In plain digits, or `unknown`. */
  get total(): string {
    return this.unpriced > 0 ? 'unknown' : formatDecimal(this.known);
  }
}

/** The sums of expenses by their kind. */
export class Sums {
  readonly spent = new Sum();
  readonly failed = new Sum();
  readonly doubt = new Sum();

  add({ kind, amount }: Expense): void {
    this[kind].add(amount);
  }
}
