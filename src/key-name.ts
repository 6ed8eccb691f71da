import { usageError } from './errors.ts';
import { printableLine } from './printable.ts';

const form = /^[A-Za-z0-9_][A-Za-z0-9_.@:+-]{0,127}$/;

/** Describes what {@link isKeyName} allows. */
export const keyNameForm =
  '1 to 128 letters, digits and _ . @ : + -, beginning with a letter, digit or _, without ..';

/** Whether a name can be a key: it is safe in a script, a file name and a log. */
export function isKeyName(name: string): boolean {
  return form.test(name) && !name.includes('..');
}

/** Refuses an invalid key, and a key together with `--new`. @throws MgwError('usage'). */
export function checkKeyName(key: string | undefined, fresh: boolean | undefined): void {
  if (key === undefined) return;
  if (fresh)
    throw usageError('--key and --new contradict each other: a key permanently names one submission.');
  if (isKeyName(key)) return;
  const shown = key === '' ? 'an empty name' : printableLine(key, 60);
  throw usageError(`--key: ${shown} is not allowed; allowed: ${keyNameForm}`);
}

/**
 * Refuses a name that contains the API key, because records and file names would store it.
 * @param what the flag or field that gives the name
 * @throws MgwError('usage') that does not quote the name.
 */
export function checkNoSecret(
  what: string,
  name: string | undefined,
  redact: (text: string) => string,
): void {
  if (name === undefined || redact(name) === name) return;
  throw usageError(
    `${what} contains the API key, and records would keep it. Nothing was sent. Choose another.`,
  );
}
