import { counted } from '../../../printable.ts';
import type { Command } from 'commander';
import { addCommands, type Run } from '../../command-tree.ts';
import { configPath } from '../../../config/read.ts';
import { requireKey, type Settings } from '../../../config/resolve.ts';
import { originText } from '../../../config/layers.ts';
import { toMgwError, type MgwError } from '../../../errors.ts';
import { accountOf } from '../../../flows/settings.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import { table } from '../../output/table.ts';
import { columnsOf } from '../../io.ts';

/**
 * `mgw auth login|status|logout`: manages the key and its gateway. No flag accepts a key, because process lists display
 * flags.
 */
export function registerAuth(auth: Command, run: Run): void {
  addCommands(auth, run, {
    login: {
      about: "store a gateway's address and an API key that it accepts",
      load: async () => (await import('./login.ts')).registerLogin,
    },
    status: {
      about: 'show the gateway and key in use, and whether the key is accepted',
      load: () => Promise.resolve(registerStatus),
    },
    logout: {
      about: 'remove the API key from the profile',
      load: async () => (await import('./login.ts')).registerLogout,
    },
  });
}

/** `mgw auth status`: shows the gateway and key in use, their sources, and whether the key is accepted. */
function registerStatus(command: Command, run: Run): void {
  command
    .addHelpText(
      'after',
      '\nThe key itself is never shown. Calls GET /v1/models, which is free of charge.' +
        '\n\nExamples:\n  $ mgw auth status\n  $ mgw auth status --profile work --json\n  $ mgw auth status -q && echo accepted',
    )
    .action(() => run(command, showStatus));
}

async function showStatus(context: Context): Promise<Outcome> {
  const settings = await context.settings();
  const file = configPath(context.io.env);
  const profile = settings.profile.value;
  if (settings.sandbox.value) {
    const auth = { profile, sandbox: true, config_file: file };
    return { json: { auth }, text: 'The sandbox is in use. No key is needed.' };
  }
  const { baseUrl, baseUrlProblem, key } = settings;
  const account = await attempt(() => accountOf(requireKey(settings)));
  const { fetchModels } = await import('../../../flows/models.ts');
  await context.deadline();
  const models = await attempt(async () => (await fetchModels(context, undefined, { retries: 1 })).length);
  const rows = [
    ['profile', profile, originText(settings.profile)],
    ['base_url', ...baseUrlCells(settings)],
    ['api_key', key ? (account.value ? '(set)' : '(unusable)') : '(none)', key ? originText(key) : ''],
    ...(account.value ? [['account', account.value, '']] : []),
    ['accepted', acceptedText(models), ''],
    ['config file', file, ''],
  ];
  const auth = {
    profile,
    base_url: baseUrl?.value,
    base_url_source: baseUrl && originText(baseUrl),
    key_source: key && originText(key),
    account: account.value,
    accepted: isAccepted(models),
    models: models.value,
    config_file: file,
  };
  const error = account.error ?? baseUrlProblem ?? models.error;
  const storesKey = models.error?.code === 'auth' && key?.source === 'profile';
  return {
    json: { auth },
    text: table(['what', 'value', 'from'], rows, columnsOf(context.io.stdout)),
    error: storesKey ? error?.with({ next: ['mgw', 'auth', 'login'] }) : error,
  };
}

function baseUrlCells({ baseUrl, baseUrlProblem }: Settings): [string, string] {
  if (baseUrl !== undefined) return [baseUrl.value, originText(baseUrl)];
  return [baseUrlProblem ? '(unusable)' : '(none)', ''];
}

// Whether the gateway accepts the key; undefined if the response does not show this.
function isAccepted({ value, error }: AttemptResult<number>): boolean | undefined {
  if (value !== undefined) return true;
  return error?.code === 'auth' ? false : undefined;
}

function acceptedText(models: AttemptResult<number>): string {
  if (models.value !== undefined) return `yes, with ${counted(models.value, 'model')}`;
  return isAccepted(models) === false ? 'no' : 'unknown';
}

/** The value that an action returned, or the error that it threw. */
type AttemptResult<T> = { value: T; error?: undefined } | { value?: undefined; error: MgwError };

async function attempt<T>(action: () => T | Promise<T>): Promise<AttemptResult<T>> {
  try {
    return { value: await action() };
  } catch (error) {
    return { error: toMgwError(error) };
  }
}
