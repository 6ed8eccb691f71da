import { keyOfFile, readKeyFile } from '../../../config/key.ts';
import type { ConfigFile } from '../../../config/schema.ts';

/** Every key that is configured, whichever is in use: in MGW_API_KEY, in MGW_API_KEY_FILE's file, in each profile. */
export function configuredKeys(env: NodeJS.ProcessEnv, { profiles }: ConfigFile): string[] {
  const keys = [env['MGW_API_KEY'], keyInFile(env), ...Object.values(profiles).map((each) => each.api_key)];
  return keys.filter((key) => key !== undefined);
}

function keyInFile({ MGW_API_KEY_FILE: path }: NodeJS.ProcessEnv): string | undefined {
  try {
    return path ? keyOfFile(readKeyFile(path)).trim() : undefined;
  } catch {
    // In CI, often a secret that was not passed on: what cannot be read is not copied either.
    return undefined;
  }
}
