import { parseAmount } from '../decimal.ts';
import { parseDuration } from '../clock.ts';
import { parseStateUrl } from '../state-url.ts';
import { parseEndpoint, parseStoreUrl } from '../store-url.ts';

/** The command-line flags, by commander's names. A flag that was not given is absent. */
export interface SettingFlags {
  profile?: string;
  baseUrl?: string;
  /** The key that a program passes. No flag accepts a key, because process lists show flags. */
  apiKey?: string;
  allowHttp?: boolean;
  allowInsecureDatabase?: boolean;
  /** The values of all `--trust-origin` flags. */
  trustOrigin?: readonly string[];
  /** A duration: text with a unit, or a number in ms if the command line has parsed it. */
  timeout?: string | number;
  pollInterval?: string | number;
  requestTimeout?: string | number;
  retries?: string | number;
  /** The value of `--budget-name`. */
  budgetName?: string;
  /** The value of `--speaker` in `mgw tts`. */
  speaker?: string;
  sandbox?: boolean;
  /** False for `--no-input`. True is commander's default and has no meaning. */
  input?: boolean;
}

/** One setting: its sources, its parser and its default. */
export interface Rule<T> {
  /** The setting's name in `mgw config`. */
  key: string;
  /** The setting's dotted path in a profile of the config file. Default: the key. */
  path?: string;
  flag?: { name: string; field: keyof SettingFlags };
  /** The environment variable. An empty variable is treated as not set. */
  env?: string;
  /** If true, messages do not repeat the value. */
  isSecret?: boolean;
  /**
   * Parses text from a flag, a variable or `config set`, or a value from the config file.
   * @throws Error whose message states the allowed values.
   */
  parse: (value: unknown) => T;
  fallback: T;
}

function rule<T>(
  key: string,
  parse: (value: unknown) => T,
  fallback: T,
  from: Partial<Rule<T>> = {},
): Rule<T> {
  return { key, parse, fallback, ...from };
}

const fromFlag = (name: string, field: keyof SettingFlags) => ({ flag: { name, field } });

/** The settings that do not depend on others, by their names in `Settings` (design 1 and 3). Durations are in ms. */
export const rules = {
  allowHttp: rule('allow_http', boolean, false, fromFlag('--allow-http', 'allowHttp')),
  allowInsecureDatabase: rule(
    'allow_insecure_database',
    boolean,
    false,
    fromFlag('--allow-insecure-database', 'allowInsecureDatabase'),
  ),
  timeoutMs: rule('timeout', duration, 30 * 60_000, {
    ...fromFlag('--timeout', 'timeout'),
    env: 'MGW_TIMEOUT',
  }),
  pollIntervalMs: rule('poll_interval', duration, 5000, fromFlag('--poll-interval', 'pollInterval')),
  /** The timeout for a single request. If undefined, each kind of request has its own default. */
  requestTimeoutMs: rule<number | undefined>(
    'request_timeout',
    duration,
    undefined,
    fromFlag('--request-timeout', 'requestTimeout'),
  ),
  /** The shared ledger's URL. It may contain a password. If undefined, the ledger is on this machine. */
  // A folder is set with MGW_STATE_DIR instead, so that a mistyped URL does not create a second ledger.
  state: rule<string | undefined>('state', checkedBy(parseStateUrl), undefined, {
    env: 'MGW_STATE',
    isSecret: true,
  }),
  retries: rule('retries', retryCount, 5, fromFlag('--retries', 'retries')),
  submitRetry5xx: rule('submit.retry_5xx', boolean, false),
  ttsSpeaker: rule<string | undefined>('tts.speaker', word, undefined, {
    ...fromFlag('--speaker', 'speaker'),
    env: 'MGW_TTS_SPEAKER',
  }),
  ttsFormat: rule('tts.format', speechFormatName, 'mp3'),
  ttsSampleRate: rule('tts.sample_rate', positiveInteger, 24_000),
  ttsPrice: rule<string | undefined>('prices.tts', word, undefined),
  /** The bucket for uploaded input files (design 17). */
  storeUrl: rule<string | undefined>('store', checkedBy(parseStoreUrl), undefined, { path: 'store.url' }),
  storeEndpoint: rule<string | undefined>('store.endpoint', plainUrl, undefined),
  storeExpiresMs: rule('store.expires', storeExpiry, 24 * 3_600_000),
  storeCommand: rule<string[] | undefined>('store.command', words, undefined),
  /** The multipliers from specification 8, as decimal text. */
  groupMultiplier: rule('prices.group_multiplier', checkedBy(parseAmount), '1'),
  userMultiplier: rule('prices.user_multiplier', checkedBy(parseAmount), '1'),
  /** The unit of amounts, such as `USD`. */
  currency: rule('currency', currencyName, 'credits'),
  /** The name of the standing budget. */
  budget: rule<string | undefined>('budget', budgetName, undefined, fromFlag('--budget-name', 'budgetName')),
  cAuthHeader: rule('c.auth_header', headerName, 'Authorization'),
  cAuthScheme: rule<string | undefined>('c.auth_scheme', authScheme, undefined),
  /** The URL that `doctor --update` requests to find the newest version. No other command requests it. */
  updateUrl: rule<string | undefined>('update_url', plainUrl, undefined),
  sandboxPaceMs: rule('sandbox.pace', duration, 3000),
  /** The sandbox's balance, in credits. */
  sandboxBalance: rule<number | undefined>('sandbox.balance', credits, undefined),
  sandboxConcurrency: rule<number | undefined>('sandbox.concurrency', positiveInteger, undefined),
  sandboxPerMinute: rule<number | undefined>('sandbox.per_minute', positiveInteger, undefined),
} satisfies Record<string, Rule<unknown>>;

/** Parses a boolean from a flag, a variable or `config set`. @throws Error whose message states the allowed values. */
export function boolean(value: unknown): boolean {
  const word = String(value).toLowerCase();
  if (['true', '1', 'yes', 'on'].includes(word)) return true;
  if (['false', '0', 'no', 'off'].includes(word)) return false;
  throw new Error('true or false');
}

// Returns a parser that returns the text unchanged if `check` accepts it.
function checkedBy(check: (text: string) => unknown): (value: unknown) => string {
  return (value) => {
    check(String(value));
    return String(value);
  };
}

function duration(value: unknown): number {
  return typeof value === 'number' ? value : parseDuration(String(value));
}

function wholeNumber(value: unknown): number {
  return /^\d{1,9}$/.test(String(value)) ? Number(value) : Number.NaN;
}

function retryCount(value: unknown): number {
  const count = wholeNumber(value);
  if (!(count <= 100)) throw new Error('a whole number from 0 (none) to 100');
  return count;
}

function positiveInteger(value: unknown): number {
  const count = wholeNumber(value);
  if (!(count >= 1)) throw new Error('a positive whole number');
  return count;
}

/** Parses an amount of credits for the sandbox. @throws Error whose message states the allowed values. */
export function credits(value: unknown): number {
  const text = String(value);
  if (!/^\d{1,9}(\.\d{1,6})?$/.test(text)) throw new Error('an amount of credits such as 100 or 0.5');
  return Number(text);
}

/** Whether a standing budget may have this name. */
export function isBudgetName(name: string): boolean {
  return /^[A-Za-z0-9][\w.-]{0,63}$/.test(name);
}

/** Checks a standing budget's name. @throws Error whose message states the allowed values. */
export function budgetName(value: unknown): string {
  const name = String(value);
  if (!isBudgetName(name))
    throw new Error(
      'a name of at most 64 letters, digits, ".", "_" and "-" that begins with a letter or digit',
    );
  return name;
}

function currencyName(value: unknown): string {
  const name = String(value);
  if (!/^[\p{L}\p{Sc}]{1,12}$/u.test(name)) throw new Error('a word or a sign such as USD, credits or €');
  return name;
}

function plainUrl(value: unknown): string {
  return parseEndpoint(String(value)).href;
}

// S3 signs URLs for one week at most.
function storeExpiry(value: unknown): number {
  const ms = duration(value);
  if (ms < 60_000 || ms > 7 * 24 * 3_600_000) throw new Error('a duration from 1m to 168h, such as 24h');
  return ms;
}

function words(value: unknown): string[] {
  const list = [value].flat().map(String);
  if (list[0] === undefined || list[0] === '') throw new Error('a program and its arguments');
  return list;
}

// A default must be a format that mgw supports, although `--format` accepts any word.
function speechFormatName(value: unknown): string {
  const name = String(value);
  if (!['mp3', 'wav', 'pcm', 'ogg_opus'].includes(name))
    throw new Error('mp3, wav, pcm or ogg_opus (for any other format, use --format)');
  return name;
}

function word(value: unknown): string {
  const text = String(value);
  if (text.trim() === '' || /\p{Cc}/u.test(text)) throw new Error('one line of non-empty text');
  return text;
}

// Headers that cannot contain the key, because mgw sets them itself or because they change how the request is parsed.
const takenHeaders =
  /^(host|content-length|content-type|transfer-encoding|connection|te|upgrade|expect|accept|range|if-range|user-agent|accept-encoding)$/i;

function headerName(value: unknown): string {
  const name = String(value);
  if (!/^[\w!#$%&'*+.^`|~-]{1,64}$/.test(name) || takenHeaders.test(name))
    throw new Error('a header that can contain a key, such as Authorization or X-Api-Key');
  return name;
}

function authScheme(value: unknown): string {
  const scheme = String(value);
  if (!/^[\w!#$%&'*+.^`|~-]{0,32}$/.test(scheme)) throw new Error('one word such as Bearer, or "" for none');
  return scheme;
}
