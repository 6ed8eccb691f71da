import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { messageOf, MgwError, systemCode } from '../errors.ts';

/** The credentials and the region of an S3-compatible service. */
export interface AwsAccount {
  accessKeyId: string;
  secretAccessKey: string;
  /** Only of temporary credentials. */
  sessionToken?: string | undefined;
  /** When temporary credentials end, ms since 1970, if that is known. */
  endsAt?: number | undefined;
  region: string;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * Reads credentials and region from the standard AWS variables, then from the standard AWS files (design 17).
 * @throws MgwError('config'), exit 2, if there are none; the message never shows a value.
 */
export async function awsAccount(env: Env): Promise<AwsAccount> {
  const [own, secret] = [env['AWS_ACCESS_KEY_ID'], env['AWS_SECRET_ACCESS_KEY']];
  const named = env['AWS_REGION'] || env['AWS_DEFAULT_REGION'];
  const sessionToken = env['AWS_SESSION_TOKEN'] || undefined;
  const ending = Date.parse(env['AWS_CREDENTIAL_EXPIRATION'] ?? '');
  const endsAt = sessionToken === undefined || Number.isNaN(ending) ? undefined : ending;
  if (own && secret && named)
    return { accessKeyId: own, secretAccessKey: secret, sessionToken, endsAt, region: named };
  const profile = env['AWS_PROFILE'] || 'default';
  const folder = join(env['HOME'] || homedir(), '.aws');
  const [credentials, config] = await Promise.all([
    section(env['AWS_SHARED_CREDENTIALS_FILE'] || join(folder, 'credentials'), [profile]),
    section(env['AWS_CONFIG_FILE'] || join(folder, 'config'), [`profile ${profile}`, profile]),
  ]);
  const region = named || config['region'] || 'us-east-1';
  if (own && secret) return { accessKeyId: own, secretAccessKey: secret, sessionToken, endsAt, region };
  const [shared, sharedSecret] = [credentials['aws_access_key_id'], credentials['aws_secret_access_key']];
  if (shared && sharedSecret)
    return {
      accessKeyId: shared,
      secretAccessKey: sharedSecret,
      sessionToken: credentials['aws_session_token'],
      region,
    };
  throw new MgwError(
    'config',
    `There are no credentials for the store. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to the profile ${profile} of ~/.aws/credentials.`,
    { next: ['mgw', 'config', 'get', 'store'] },
  );
}

// The first of the named sections of a file in the INI form of AWS; empty if there is no such file.
async function section(path: string, names: readonly string[]): Promise<Record<string, string>> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return '';
    throw new MgwError('config', `Cannot read ${path}: ${messageOf(error)}.`);
  });
  const sections = new Map<string, Record<string, string>>();
  let values: Record<string, string> = {};
  for (const line of text.split(/\r?\n/)) {
    const [, name] = /^\s*\[([^\]]+)\]/.exec(line) ?? [];
    if (name !== undefined) sections.set(name.trim(), (values = {}));
    const [, key = '', value = ''] = /^\s*([\w-]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key !== '') values[key] = value;
  }
  return names.map((name) => sections.get(name)).find((found) => found !== undefined) ?? {};
}
