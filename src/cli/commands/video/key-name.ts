import { usageError } from '../../../errors.ts';
import { isKeyName, keyNameForm } from '../../../key-name.ts';
import { printableLine } from '../../../printable.ts';

/** Refuses what cannot name a job. */
export function checkKeyName(key: string | undefined, fresh: boolean | undefined): void {
  if (key === undefined) return;
  if (fresh) throw usageError('--key and --new contradict each other: a key names one submission for ever.');
  if (isKeyName(key)) return;
  const shown = key === '' ? 'an empty name' : printableLine(key, 60);
  throw usageError(`--key: ${shown} is not allowed; allowed: ${keyNameForm}`);
}
