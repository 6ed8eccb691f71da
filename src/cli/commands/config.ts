import type { Command } from 'commander';
import {
  isPrice,
  storedValue,
  keyPath,
  withValue,
  hiddenKey,
  listSettings,
  type SettingRow,
} from '../../config/setting-names.ts';
import { thisHost } from '../../config/places.ts';
import { badSetting, checkProfileName, namedProfile, originText } from '../../config/layers.ts';
import { configPath, keysAtHand, readConfig, readRawConfig } from '../../config/read.ts';
import { layersOf } from '../../config/resolve.ts';
import type { ConfigFile } from '../../config/schema.ts';
import { MgwError, usageError } from '../../errors.ts';
import type { Context } from '../context.ts';
import { table } from '../output/table.ts';
import type { Outcome } from '../output/outcome.ts';
import type { Run } from '../command-tree.ts';
import { columnsOf } from '../io.ts';

/** `mgw config list|get|set|unset|path|edit`: shows settings with their sources, and changes them (design 3). */
export function registerConfig(group: Command, run: Run): void {
  const list = group
    .command('list')
    .alias('ls')
    .description('list every setting with its value and source; keys are hidden')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw config list\n  $ mgw config list --json\n  $ mgw config list --profile work',
    )
    .action(() => run(list, listAll));
  const get = group
    .command('get')
    .description("print a setting's value")
    .argument('<key>', 'setting name, as in config list')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw config get timeout\n  $ mgw config get poll_interval\n  $ mgw config get timeout --profile work',
    )
    .action((key: string) => run(get, (context) => getSetting(context, key)));
  const set = group
    .command('set')
    .description('store a setting in the profile')
    .argument('<key>', 'setting name')
    .argument('<values...>', 'the value, or several values for a list')
    .addHelpText('after', setExamples)
    .action((key: string, values: string[]) => run(set, (context) => setSetting(context, key, values)));
  const unset = group
    .command('unset')
    .description('remove a setting from the profile, or a whole profile')
    .argument('<key>', 'setting name, or profiles.NAME')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw config unset timeout\n  $ mgw config unset base_url --profile work\n  $ mgw config unset profiles.work',
    )
    .action((key: string) => run(unset, (context) => unsetSetting(context, key)));
  const path = group
    .command('path')
    .description("print the config file's path")
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw config path\n  $ mgw config path --json\n  $ ls -l "$(mgw config path)"',
    )
    .action(() => run(path, ({ io }) => Promise.resolve(pathOf(io.env))));
  const edit = group
    .command('edit')
    .description('open the config file in $VISUAL or $EDITOR, then check it')
    .addHelpText('after', '\nExamples:\n  $ mgw config edit\n  $ EDITOR="code --wait" mgw config edit')
    .action(() => run(edit, async (context) => (await import('./edit-config.ts')).editConfig(context)));
}

const setExamples = `
Examples:
  $ mgw config set base_url https://gateway.example.com
  $ mgw config set tts.speaker NAME
  $ mgw config set defaults.video.a.veo-3.duration 8
  $ mgw config set prices.c.vendor-h3 'second=0.20' 'resolution=2K: second=0.40'
  $ mgw config set trusted_origins https://files.example.com https://cdn.example.com
  $ mgw config set profile work`;

function pathOf(env: NodeJS.ProcessEnv): Outcome {
  const path = configPath(env);
  return { json: { config_file: path }, text: path };
}

// Does not use context.settings(), which throws if a setting is invalid. The list must include invalid settings.
async function rowsOf({ io, globals }: Context): Promise<SettingRow[]> {
  const layers = layersOf({ flags: globals, env: io.env, file: await readConfig(io.env) });
  return listSettings(layers, thisHost());
}

async function listAll(context: Context): Promise<Outcome> {
  const rows = await rowsOf(context);
  const lines = rows.map((row) => [row.key, row.problem ?? valueText(row.value), originText(row)]);
  return {
    json: { settings: rows },
    text: table(['setting', 'value', 'from'], lines, columnsOf(context.io.stdout)),
  };
}

function valueText(value: SettingRow['value']): string {
  if (value === undefined) return '-';
  if (Array.isArray(value)) return value.length === 0 ? '-' : value.join(' ');
  return value === '' ? '""' : String(value);
}

async function getSetting(context: Context, key: string): Promise<Outcome> {
  const rows = await rowsOf(context);
  const path = rows.some((row) => row.key === key) ? key : keyPath(key, 'get').join('.');
  const row = rows.find((one) => one.key === path);
  if (row?.value === hiddenKey)
    throw usageError('The key is never shown. To see its source: mgw auth status', ['mgw', 'auth', 'status']);
  if (row?.problem !== undefined) throw new MgwError('config', row.problem);
  if (row?.value === undefined) throw new MgwError('config', `${key} is not set.`);
  return { json: { setting: row }, text: [row.value].flat().join('\n') };
}

async function setSetting(context: Context, key: string, words: string[]): Promise<Outcome> {
  if (key === 'profile') return chooseProfile(context, words);
  if (key === 'api_key')
    throw usageError('The key cannot be set on the command line, because other users could see it.', [
      'mgw',
      'auth',
      'login',
    ]);
  const path = keyPath(key, 'set', words);
  await checkNoKey(context, [key, ...words, context.globals.profile ?? '']);
  if (path[0] === 'defaults') await (await import('./edit-config.ts')).checkDefault(path, words);
  if (isPrice(path)) (await import('./edit-config.ts')).checkPrice(path, words);
  const { io } = context;
  const profile = profileName(context);
  const { changeProfile } = await import('../../config/store.ts');
  await changeProfile(io.env, profile, (before) => {
    try {
      return withValue(before, path, storedValue(path, words, before));
    } catch (error) {
      throw badSetting(key, { source: 'flag', name: key }, words.join(' '), error);
    }
  });
  context.progress.note(`${key} is set in profile "${profile}".`);
  return { json: { key: path.join('.'), profile } };
}

// Refuses values that contain a key. Only `auth login` stores keys, because users may share the other settings.
async function checkNoKey({ io }: Context, words: readonly string[]): Promise<void> {
  const { secretRedactor } = await import('../../redact.ts');
  const { checkNoSecret } = await import('../../jobs/order.ts');
  const redact = secretRedactor(keysAtHand(io.env));
  for (const word of words) checkNoSecret('The setting', word, redact);
}

async function unsetSetting(context: Context, key: string): Promise<Outcome> {
  if (key === 'profile') return chooseProfile(context, []);
  if (key.startsWith('profiles.')) return removeProfile(context, key.slice('profiles.'.length));
  const path = keyPath(key, 'unset');
  const profile = profileName(context);
  const { changeProfile } = await import('../../config/store.ts');
  await changeProfile(context.io.env, profile, (before) => withValue(before, path, undefined));
  context.progress.note(`${key} is no longer set in profile "${profile}".`);
  return { json: { key: path.join('.'), profile } };
}

// Reads the config file without validating it, because this command may be correcting an invalid value.
function profileName({ io, globals }: Context): string {
  const raw = readRawConfig(configPath(io.env));
  const chosen = raw?.['profile'];
  const file: ConfigFile = { profiles: {}, ...(typeof chosen === 'string' && { profile: chosen }) };
  return namedProfile(globals.profile, io.env, file).value;
}

async function chooseProfile({ io, progress }: Context, [name, ...more]: string[]): Promise<Outcome> {
  if (more.length > 0) throw usageError('profile must be a single value.');
  const { changeConfig } = await import('../../config/store.ts');
  await changeConfig(io.env, (file) => {
    if (name !== undefined) checkProfileExists(checkProfileName(name), file);
    return withValue(file, ['profile'], name);
  });
  progress.note(name === undefined ? 'The profile is now "default".' : `The profile is now "${name}".`);
  return { json: { key: 'profile', ...(name !== undefined && { profile: name }) } };
}

async function removeProfile({ io, progress }: Context, name: string): Promise<Outcome> {
  const { changeConfig } = await import('../../config/store.ts');
  await changeConfig(io.env, (file) => {
    if (!Object.hasOwn(file.profiles, name)) throw usageError(`There is no profile "${name}".`);
    const others = withValue(file, ['profiles', name], undefined);
    return file.profile === name ? withValue(others, ['profile'], undefined) : others;
  });
  progress.note(`The profile "${name}" was removed.`);
  return { json: { key: `profiles.${name}`, profile: name } };
}

function checkProfileExists(name: string, file: ConfigFile): void {
  if (name === 'default' || Object.hasOwn(file.profiles, name)) return;
  throw usageError(`There is no profile "${name}".`, ['mgw', 'auth', 'login', '--profile', name]);
}
