import { usageError } from '../../../errors.ts';
import { printableLine } from '../../../printable.ts';

/** Refuses what cannot name a job: it must be safe in a script, in a file name and in a log. */
export function checkKeyName(key: string | undefined, fresh: boolean | undefined): void {
  if (key === undefined) return;
  if (fresh) throw usageError('--key and --new contradict each other: a key names one submission for ever.');
  if (/^[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}$/.test(key) && !key.includes('..')) return;
  const allowed =
    'allowed: 1 to 128 letters, digits and _ . @ : + -, beginning with a letter, digit or _, without ..';
  throw usageError(
    `--key: ${key === '' ? 'an empty name' : printableLine(key, 60)} is not allowed; ${allowed}`,
  );
}
