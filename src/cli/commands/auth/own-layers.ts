import { type Layers, namedProfile } from '../../../config/layers.ts';
import { readConfig } from '../../../config/read.ts';
import type { ConfigFile } from '../../../config/schema.ts';
import type { Context } from '../../context.ts';

/** The layers that a change of the chosen profile is made in, and the file that it is in; the profile need not exist yet. */
export async function ownLayers({ io, globals }: Context): Promise<Layers & { file: ConfigFile }> {
  const file = await readConfig(io.env);
  const profileName = namedProfile(globals.profile, io.env, file);
  const { value: name } = profileName;
  const profile = Object.hasOwn(file.profiles, name) ? file.profiles[name] : undefined;
  return { flags: globals, env: io.env, profileName, profile: profile ?? {}, file };
}

/** The variables that give a key, the one that is used first. */
export const keyVariables = ['MGW_API_KEY', 'MGW_API_KEY_FILE'] as const;
