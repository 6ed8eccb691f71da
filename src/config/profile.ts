import { MgwError, usageError } from '../errors.ts';
import type { ConfigFile } from './schema.ts';
import type { Env, Setting } from './layers.ts';

/** The profile that is meant where nobody names one. */
export const defaultProfile = 'default';

/** A name that a profile may bear. @throws MgwError('usage') saying what is allowed. */
export function checkProfileName(name: string): string {
  if (/^[A-Za-z0-9][\w.-]{0,63}$/.test(name) && !/^(constructor|prototype)$/.test(name)) return name;
  throw usageError(
    'A profile name has letters, digits, ".", "_" and "-", begins with one of the first two kinds, and has at most 64 of them.',
  );
}

/**
 * The profile in use, whether it exists or not: flag, MGW_PROFILE, the file's own choice, `default`.
 * @throws MgwError('usage') where the name could not be one.
 */
export function namedProfile(flag: string | undefined, env: Env, file: ConfigFile): Setting<string> {
  if (flag !== undefined) return { value: checkProfileName(flag), source: 'flag', name: '--profile' };
  const variable = env['MGW_PROFILE'];
  if (variable) return { value: checkProfileName(variable), source: 'env', name: 'MGW_PROFILE' };
  if (file.profile === undefined) return { value: defaultProfile, source: 'default' };
  const value = checkProfileName(file.profile);
  return { value, source: 'profile', name: value };
}

/** {@link namedProfile}, for reading. @throws MgwError('config') where a named profile does not exist. */
export function chooseProfile(flag: string | undefined, env: Env, file: ConfigFile): Setting<string> {
  const chosen = namedProfile(flag, env, file);
  if (chosen.value === defaultProfile || Object.hasOwn(file.profiles, chosen.value)) return chosen;
  const known = Object.keys(file.profiles);
  throw new MgwError(
    'config',
    `There is no profile "${chosen.value}"${known.length > 0 ? `; there is ${known.join(', ')}` : ''}. ` +
      `"mgw auth login --profile ${chosen.value}" makes it.`,
    { next: ['mgw', 'auth', 'login', '--profile', chosen.value] },
  );
}
