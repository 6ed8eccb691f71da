import type { Command } from 'commander';
import { parseBaseUrl } from '../../config/base-url.ts';
import { resolveNoInput } from '../../config/derived.ts';
import { withValue } from '../../config/keys.ts';
import { checkKey, keyOfFile } from '../../config/key.ts';
import type { Layers } from '../../config/layers.ts';
import { namedProfile } from '../../config/profile.ts';
import { configPath, readConfig } from '../../config/read.ts';
import { requireKey } from '../../config/resolve.ts';
import { badSetting, originText } from '../../config/source.ts';
import { messageOf, MgwError, usageError, toMgwError } from '../../errors.ts';
import { accountOf } from '../../session/account.ts';
import type { Context } from '../context.ts';
import { readHidden } from '../hidden-prompt.ts';
import { table } from '../output/table.ts';
import type { Outcome } from '../output/outcome.ts';
import type { Run } from '../action.ts';
import { readStdin } from '../stdin.ts';

/** `mgw auth login|status|logout`: where the key comes from. No flag takes a key: a process list shows flags. */
export function registerAuth(parent: Command, run: Run): void {
  const group = parent.command('auth').description('keep the API key, look where it comes from, remove it');
  const login = group
    .command('login')
    .description('keep an API key, asked for without echo or read from standard input')
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw auth login --base-url https://gateway.example.com\n  $ mgw auth login --profile work < key.txt',
    )
    .action(() => run(login, keepKey));
  const status = group
    .command('status')
    .description('show which gateway and which key are in use; the key itself is never shown')
    .action(() => run(status, showStatus));
  const logout = group
    .command('logout')
    .description('remove the API key from the profile')
    .action(() => run(logout, removeKey));
}

async function keepKey(context: Context): Promise<Outcome> {
  const { io, globals, progress } = context;
  const layers = await layersForWriting(context);
  const { value: profile } = layers.profileName;
  const allowHttp = globals.allowHttp ?? layers.profile.allow_http ?? false;
  const baseUrl = globals.baseUrl === undefined ? undefined : checkedBaseUrl(globals.baseUrl, allowHttp);
  const key = await askForKey(context, layers);
  const { changeProfile } = await import('../../config/store.ts');
  await changeProfile(io.env, profile, (before) => ({
    ...before,
    api_key: key,
    ...(baseUrl !== undefined && { base_url: baseUrl }),
    ...(globals.allowHttp && { allow_http: true }),
  }));
  const file = configPath(io.env);
  progress.note(`The key is kept in ${file}, profile "${profile}". "mgw doctor" tries it.`);
  for (const hint of hints(io.env, baseUrl ?? layers.profile.base_url)) progress.note(hint);
  return { json: { profile, config_file: file, ...(baseUrl !== undefined && { base_url: baseUrl }) } };
}

// The profile need not exist yet, so that login can make it.
async function layersForWriting({ io, globals }: Context): Promise<Layers> {
  const file = await readConfig(io.env);
  const profileName = namedProfile(globals.profile, io.env, file);
  const known = Object.hasOwn(file.profiles, profileName.value)
    ? file.profiles[profileName.value]
    : undefined;
  return { flags: globals, env: io.env, profileName, profile: known ?? {} };
}

function checkedBaseUrl(text: string, allowHttp: boolean): string {
  try {
    return parseBaseUrl(text, allowHttp);
  } catch (error) {
    throw badSetting('base_url', { source: 'flag', name: '--base-url' }, text, error);
  }
}

async function askForKey({ io }: Context, layers: Layers): Promise<string> {
  const terminal = io.stdin.isTTY === true;
  if (terminal && resolveNoInput(layers).value)
    throw usageError(
      'Nobody may be asked for the key here. Give it on standard input: mgw auth login < key-file',
    );
  const key = terminal ? (await readHidden(io, 'API key: ')).trim() : keyOfFile(await readStdin(io));
  try {
    return checkKey(key);
  } catch (error) {
    const from = terminal ? 'that was typed' : 'on standard input';
    throw new MgwError('config', `The key ${from} cannot be used: ${messageOf(error)}.`);
  }
}

function hints(env: NodeJS.ProcessEnv, baseUrl: string | undefined): string[] {
  const first = ['MGW_API_KEY', 'MGW_API_KEY_FILE'].find((name) => env[name] !== undefined);
  return [
    ...(first === undefined ? [] : [`${first} is set and goes before it.`]),
    ...(baseUrl !== undefined || env['MGW_BASE_URL']
      ? []
      : ['No gateway is configured yet: mgw config set base_url https://…']),
  ];
}

async function showStatus(context: Context): Promise<Outcome> {
  const settings = await context.settings();
  const file = configPath(context.io.env);
  const { sandbox, baseUrl, baseUrlProblem, key } = settings;
  if (sandbox.value) {
    const auth = { profile: settings.profile.value, sandbox: true, config_file: file };
    return { json: { auth }, text: 'The sandbox is in use: it needs no key.' };
  }
  const account = tried(() => accountOf(requireKey(settings)));
  const rows = [
    ['profile', settings.profile.value, originText(settings.profile)],
    [
      'base_url',
      baseUrl?.value ?? (baseUrlProblem ? '(unusable)' : '(none)'),
      baseUrl ? originText(baseUrl) : '',
    ],
    ['api_key', key ? ('value' in account ? '(set)' : '(unusable)') : '(none)', key ? originText(key) : ''],
    ...('value' in account ? [['account', account.value, '']] : []),
    ['config file', file, ''],
  ];
  const auth = {
    profile: settings.profile.value,
    base_url: baseUrl?.value,
    base_url_source: baseUrl && originText(baseUrl),
    key_source: key && originText(key),
    account: 'value' in account ? account.value : undefined,
    config_file: file,
  };
  const error = 'error' in account ? account.error : baseUrlProblem;
  return { json: { auth }, text: table(['what', 'value', 'from'], rows), error };
}

function tried<T>(act: () => T): { value: T } | { error: MgwError } {
  try {
    return { value: act() };
  } catch (error) {
    return { error: toMgwError(error) };
  }
}

async function removeKey(context: Context): Promise<Outcome> {
  const { io, progress } = context;
  const layers = await layersForWriting(context);
  const { value: profile } = layers.profileName;
  const removed = layers.profile.api_key !== undefined;
  if (removed) {
    const { changeProfile } = await import('../../config/store.ts');
    await changeProfile(io.env, profile, (before) => withValue(before, ['api_key'], undefined));
  }
  progress.note(
    removed ? `The key of profile "${profile}" is removed.` : `Profile "${profile}" holds no key.`,
  );
  const left = ['MGW_API_KEY', 'MGW_API_KEY_FILE'].find((name) => io.env[name] !== undefined);
  if (left !== undefined) progress.note(`${left} is still set.`);
  return { json: { profile, removed } };
}
