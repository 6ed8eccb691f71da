import { relative, isAbsolute } from 'node:path';
import { expensesOf } from '../../budget/spend.ts';
import { add, formatDecimal, type Decimal } from '../../decimal.ts';
import type { Job, JobFile } from '../../job.ts';
import { isObjectUrl } from '../../store-url.ts';
import type { Ledger } from '../../ledger/ledger.ts';
import { elapsed, size } from './wording.ts';

/** The facts for a command's final line. */
export interface SavedSummary {
  files: readonly JobFile[];
  /** Duration, ms. */
  ms: number;
  /** The cost as text; '' if it is unknown. */
  cost: string;
  /** True if the files existed already. */
  isOld?: boolean;
}

/** Describes a saved file: its path, size, time taken and, if known, cost. */
export function savedText({ files, ms, cost, isOld = false }: SavedSummary): string {
  const [only, ...others] = files;
  if (only === undefined) return '';
  const bytes = size(files.reduce((sum, file) => sum + file.bytes, 0));
  const what = others.length > 0 ? `${files.length} files` : nameOf(only.path);
  const price = cost === '' ? '' : `; cost ${cost}`;
  if (isOld) return `${what} (${bytes}) ${others.length > 0 ? 'were' : 'was'} there already${price}.`;
  return `${only.path === '-' ? 'Wrote' : 'Saved'} ${what} (${bytes}) after ${elapsed(ms)}${price}.`;
}

function nameOf(path: string): string {
  if (path === '-') return 'to standard output';
  if (isObjectUrl(path)) return path;
  const name = relative(process.cwd(), path);
  return name.startsWith('..') || isAbsolute(name) ? path : name;
}

/** Describes the cost of jobs; '' if a price is unknown. */
export async function costText(ledger: Ledger, jobs: readonly Job[], currency: string): Promise<string> {
  let total: Decimal | undefined;
  let isExact = true;
  for (const job of jobs) {
    const expenses = expensesOf(job, await ledger.events(job.id).catch(() => []));
    for (const { amount } of expenses) {
      if (amount === undefined) return '';
      total = total === undefined ? amount : add(total, amount);
    }
    isExact &&= job.cost?.per_10k_characters !== undefined && job.usage !== undefined;
  }
  if (total === undefined) return '';
  return `${isExact ? '' : 'at most '}${formatDecimal(total)} ${currency}`;
}
