import { messageOf, MgwError } from '../errors.ts';
import { printableLine } from '../printable.ts';

/** Where a value came from. */
export interface Origin {
  source: 'flag' | 'env' | 'profile' | 'default';
  /** The flag, the variable, or the profile; absent for a default. */
  name?: string;
}

/** A value with its origin. */
export interface Setting<T> extends Origin {
  value: T;
}

/** An origin in words: `flag --timeout`, `environment MGW_TIMEOUT`, `profile work`, `default`. */
export function originText({ source, name }: Origin): string {
  if (source === 'default') return 'default';
  return `${source === 'env' ? 'environment' : source} ${name ?? ''}`.trim();
}

/**
 * The error for a value that cannot be used: `usage` where a flag gave it, `config` elsewhere, exit 2 both.
 * `shown` is the value, '' for none.
 */
export function badSetting(key: string, origin: Origin, shown: string, cause: unknown): MgwError {
  const { source, name } = origin;
  const where = source === 'flag' || source === 'env' ? name : `${key} in ${originText(origin)}`;
  // What stands before an @ may be a password, and an address may hold one in its query.
  const value = shown === '' || /@|password/i.test(shown) ? '' : ` ${printableLine(shown, 80)}`;
  const message = `${where ?? key}${value}: allowed is ${messageOf(cause)}.`;
  return new MgwError(source === 'flag' ? 'usage' : 'config', message, { cause });
}
