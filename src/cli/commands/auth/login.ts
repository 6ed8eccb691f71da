import { counted } from '../../../printable.ts';
import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { interruptions, readStdin } from '../../io.ts';
import type { Outcome } from '../../output/outcome.ts';
import { readHidden, readLine } from '../../input.ts';
import { baseUrlRule, parseBaseUrl } from '../../../config/base-url.ts';
import { checkKey, keyOfFile } from '../../../config/key.ts';
import { withValue } from '../../../config/setting-names.ts';
import { badSetting, type Layers, lookUp, namedProfile } from '../../../config/layers.ts';
import { configPath, readConfig } from '../../../config/read.ts';
import { resolveNoInput, resolveSettings, type Settings } from '../../../config/resolve.ts';
import type { ConfigFile, Profile } from '../../../config/schema.ts';
import { type ErrorCode, messageOf, MgwError, toMgwError, usageError } from '../../../errors.ts';
import { isLoopbackHost } from '../../../exchange.ts';
import { fetchModels } from '../../../flows/models.ts';
import { openSession } from '../../../flows/session.ts';
import { asSentence } from '../../../http/failures.ts';

/** `mgw auth login`: saves a gateway's address and a key that the gateway accepts. */
export function registerLogin(command: Command, run: Run): void {
  command
    .option('--no-verify', 'store the address and the key without checking them')
    .addHelpText(
      'after',
      '\nOn a terminal, prompts for the missing values, and does not echo the key. In a script, reads the key from ' +
        'standard input. Both are checked with GET /v1/models, which is free of charge.' +
        '\n\nExamples:\n  $ mgw auth login\n  $ mgw auth login --base-url https://gateway.example.com' +
        '\n  $ mgw auth login --profile work --base-url https://gateway.example.com < key.txt',
    )
    .action((options: { verify: boolean }) => run(command, (context) => login(context, options.verify)));
}

type LoginLayers = Layers & { file: ConfigFile };

async function login(context: Context, verify: boolean): Promise<Outcome> {
  const { io, globals, progress } = context;
  const layers = await loginLayers(context);
  const { value: profile } = layers.profileName;
  const baseUrl = await addressFor(context, layers, verify);
  const newProfile: Profile = {
    ...layers.profile,
    api_key: await askForKey(context, layers, baseUrl),
    ...(baseUrl !== undefined && { base_url: baseUrl }),
    ...(globals.allowHttp && { allow_http: true }),
  };
  const models = verify ? await verifyKey(context, layers, newProfile) : undefined;
  const { changeProfile } = await import('../../../config/store.ts');
  await changeProfile(io.env, profile, (before) => ({ ...before, ...newProfile }));
  const file = configPath(io.env);
  const checkResult =
    models === undefined ? 'was not checked' : `is accepted and can use ${counted(models, 'model')}`;
  progress.note(`The key ${checkResult}. It is stored in ${file}, profile "${profile}".`);
  for (const hint of hints(layers, newProfile)) progress.note(hint);
  return { json: { profile, config_file: file, base_url: baseUrl, models } };
}

// Returns the setting layers. Adds a missing scheme to the address on the command line, as the prompt does for a typed
// address.
async function loginLayers(context: Context): Promise<LoginLayers> {
  const layers = await readLayers(context);
  const { baseUrl } = layers.flags;
  return baseUrl === undefined
    ? layers
    : { ...layers, flags: { ...layers.flags, baseUrl: withScheme(baseUrl) } };
}

// Returns the address to save next to the key, because a key belongs to one gateway. Undefined if there is no address.
async function addressFor(
  context: Context,
  layers: LoginLayers,
  verify: boolean,
): Promise<string | undefined> {
  const { globals, io, progress } = context;
  const allowHttp = globals.allowHttp ?? layers.profile.allow_http ?? false;
  const configured = lookUp(baseUrlRule, layers);
  if (configured !== undefined) {
    const text = String(configured.value);
    try {
      return parseBaseUrl(text, allowHttp);
    } catch (error) {
      throw badSetting('base_url', configured, text, error);
    }
  }
  if (!canPrompt(context, layers)) {
    if (!verify) return undefined;
    throw usageError('No gateway is configured. Add --base-url.', [
      ...['mgw', 'auth', 'login', '--base-url', 'https://GATEWAY'],
    ]);
  }
  for (;;) {
    const typed = (await readLine(io, 'Gateway address: ')).trim();
    try {
      return parseBaseUrl(withScheme(typed), allowHttp);
    } catch (error) {
      progress.note(`Enter ${messageOf(error)}.`);
    }
  }
}

function withScheme(typed: string): string {
  if (typed === '' || /^[a-z]+:\/\//i.test(typed)) return typed;
  const isLoopback = URL.canParse(`http://${typed}`) && isLoopbackHost(new URL(`http://${typed}`).hostname);
  return `${isLoopback ? 'http' : 'https'}://${typed}`;
}

function canPrompt({ io }: Context, layers: Layers): boolean {
  return io.stdin.isTTY === true && !resolveNoInput(layers).value;
}

async function askForKey(context: Context, layers: Layers, address: string | undefined): Promise<string> {
  const { io } = context;
  const ofHost = address === undefined ? '' : ` of ${new URL(address).host}`;
  const isTerminal = io.stdin.isTTY === true;
  if (isTerminal && !canPrompt(context, layers))
    throw usageError('mgw cannot prompt for the key here. Use standard input: mgw auth login < key-file');
  const key = isTerminal
    ? (await readHidden(io, `API key${ofHost} (not shown): `)).trim()
    : keyOfFile(await readStdin(io));
  try {
    return checkKey(key);
  } catch (error) {
    const origin = isTerminal ? 'that was typed' : 'on standard input';
    const next = ['mgw', 'auth', 'login'];
    throw new MgwError('config', `The key ${origin} cannot be used: ${messageOf(error)}.`, { next });
  }
}

// Checks the key by fetching the model list with the settings to be saved. Returns the number of models that the key
// can use; undefined in the sandbox, which accepts any key, or without a base URL.
async function verifyKey(
  context: Context,
  layers: LoginLayers,
  newProfile: Profile,
): Promise<number | undefined> {
  const settings = settingsWith(layers, newProfile);
  const { baseUrl, sandbox } = settings;
  if (sandbox.value || baseUrl === undefined) return undefined;
  const { progress, clock, globals } = context;
  progress.note(`Checking the key with ${new URL(baseUrl.value).host} ...`);
  const session = openSession({
    clock,
    settings: () => Promise.resolve(settings),
    note: (text) => progress.note(text),
    trace: globals.verbose ? (line) => progress.note(line) : undefined,
    signals: interruptions,
  });
  try {
    await session.deadline();
    return (await fetchModels(session, undefined, { retries: 1 })).length;
  } catch (error) {
    const failure = toMgwError(error);
    throw notStoredError(failure.with({}, session.redact(failure.message)), baseUrl.value, layers);
  } finally {
    await session.close();
  }
}

function settingsWith(
  { flags, env, file, profileName: { value: name } }: LoginLayers,
  newProfile: Profile,
): Settings {
  const envWithoutKeys = {
    ...env,
    ...Object.fromEntries(keyVariables.map((variable) => [variable, undefined])),
  };
  return resolveSettings({
    flags,
    env: envWithoutKeys,
    file: { ...file, profiles: { ...file.profiles, [name]: newProfile } },
  });
}

const failureTexts: Partial<Record<ErrorCode, string>> = {
  auth: 'refused the key',
  unreachable: 'did not respond',
  bad_reply: 'does not respond like a gateway',
  not_found: 'does not respond like a gateway',
};

function notStoredError(error: MgwError, baseUrl: string, { flags }: LoginLayers): MgwError {
  const failureText = failureTexts[error.code] ?? 'did not list its models';
  const text = `${baseUrl} ${failureText}: ${asSentence(error.message)} Nothing was stored. To store the key without checking it, use --no-verify.`;
  const addressFlags = flags.baseUrl === undefined ? [] : ['--base-url', flags.baseUrl];
  return error.with({ next: ['mgw', 'auth', 'login', ...addressFlags] }, text);
}

function hints({ env }: Layers, newProfile: Profile): string[] {
  const keyVariable = keyVariables.find((name) => env[name] !== undefined);
  return [
    ...(keyVariable === undefined ? [] : [`${keyVariable} is set and takes precedence.`]),
    ...(newProfile.base_url !== undefined
      ? []
      : ['No gateway is configured. To set one: mgw config set base_url https://…']),
  ];
}

/** `mgw auth logout`: removes only the key from the profile. */
export function registerLogout(command: Command, run: Run): void {
  command
    .addHelpText(
      'after',
      '\nExamples:\n  $ mgw auth logout\n  $ mgw auth logout --profile work\n  $ mgw auth logout --json',
    )
    .action(() => run(command, removeKey));
}

async function removeKey(context: Context): Promise<Outcome> {
  const { io, progress } = context;
  const layers = await readLayers(context);
  const { value: profile } = layers.profileName;
  const removed = layers.profile.api_key !== undefined;
  if (removed) {
    const { changeProfile } = await import('../../../config/store.ts');
    await changeProfile(io.env, profile, (before) => withValue(before, ['api_key'], undefined));
  }
  progress.note(
    removed ? `The key was removed from profile "${profile}".` : `Profile "${profile}" has no key.`,
  );
  const keyVariable = keyVariables.find((name) => io.env[name] !== undefined);
  if (keyVariable !== undefined) progress.note(`${keyVariable} is still set.`);
  return { json: { profile, removed } };
}

/** Returns the setting layers and the config file. The chosen profile need not exist. */
async function readLayers({ io, globals }: Context): Promise<LoginLayers> {
  const file = await readConfig(io.env);
  const profileName = namedProfile(globals.profile, io.env, file);
  const { value: name } = profileName;
  const profile = Object.hasOwn(file.profiles, name) ? file.profiles[name] : undefined;
  return { flags: globals, env: io.env, profileName, profile: profile ?? {}, file };
}

/** The environment variables that set a key, in order of precedence. */
const keyVariables = ['MGW_API_KEY', 'MGW_API_KEY_FILE'] as const;
