import { usageError } from '../errors.ts';
import { isObject, type JsonObject } from '../json.ts';
import { parseBaseUrl, parseOrigin } from './derived.ts';
import { holdsPassword } from '../state-url.ts';
import { rules } from './rules.ts';
import type { FlagDefault, Profile } from './schema.ts';

/** What `mgw config set` may set in a profile, next to the defaults and the prices of models. */
export const settableKeys: readonly string[] = [
  'base_url',
  'trusted_origins',
  ...Object.values(rules).map((rule) => rule.key),
];

/** A setting of a profile by its dotted name, as the steps into the profile. */
export type KeyPath = readonly [string, ...string[]];

/**
 * The steps of a dotted name. In `defaults.video.a.veo-3.1-fast.duration` the last step is the flag (no flag has
 * a dot), and all between the protocol and it is the model's name (a model may have dots).
 * @throws MgwError('usage') naming what there is.
 */
export function keyPath(name: string): KeyPath {
  if (name === 'store') return ['store', 'url'];
  if (settableKeys.includes(name) || name === 'api_key') return name.split('.') as [string, ...string[]];
  const [, protocol, model, flag] =
    /^defaults\.video\.([a-z][a-z0-9-]*)\.(.+)\.([a-z][a-z0-9_-]*)$/.exec(name) ?? [];
  if (protocol !== undefined && model !== undefined && flag !== undefined) {
    checkModelName(model);
    return ['defaults', 'video', protocol, model, flag.replaceAll('_', '-')];
  }
  const [, priced, pricedModel] = /^prices\.([a-z][a-z0-9-]*)\.(.+)$/.exec(name) ?? [];
  if (priced !== undefined && pricedModel !== undefined) {
    checkModelName(pricedModel);
    return ['prices', priced, pricedModel];
  }
  throw usageError(
    `There is no setting "${name}". There are: profile, ${settableKeys.join(', ')}, ` +
      'prices.PROTOCOL.MODEL, and defaults.video.PROTOCOL.MODEL.FLAG such as defaults.video.a.veo-3.duration.',
  );
}

function checkModelName(model: string): void {
  if (/^(__proto__|constructor|prototype)$/.test(model) || /[\p{Cc}\s]/u.test(model))
    throw usageError(`No model can be called ${JSON.stringify(model)}.`);
}

/**
 * What a profile keeps for a setting, from the words of the command line.
 * @throws Error whose message says what is allowed.
 */
export function keptValue(path: KeyPath, words: readonly string[], profile: Profile): FlagDefault {
  const allowHttp = profile.allow_http ?? false;
  const name = path.join('.');
  if (name === 'trusted_origins')
    return words.flatMap((word) => word.split(',')).map((word) => parseOrigin(word, allowHttp));
  if ((path[0] === 'defaults' && words.length > 1) || (name === 'store.command' && words.length > 0))
    return [...words];
  if (isPrice(path) && words.length > 0) return words.join('; ');
  const [word, ...more] = words;
  if (word === undefined || more.length > 0) throw new Error('one value');
  if (name === 'state' && holdsPassword(word))
    throw new Error(
      'an address without its password, which the command line would show to others: PGPASSWORD or ~/.pgpass',
    );
  if (name === 'base_url') return parseBaseUrl(word, allowHttp);
  if (path[0] === 'defaults') return plainValue(word);
  const parsed = Object.values(rules)
    .find((rule) => (rule.path ?? rule.key) === name)
    ?.parse(word);
  // Durations stay as they were written; their number alone would have no unit.
  return typeof parsed === 'boolean' || isCount(name) ? (parsed as boolean | number) : word;
}

/** True for the price of a model: each of its words is a rate. */
export function isPrice(path: KeyPath): boolean {
  return path[0] === 'prices' && (path.length === 3 || path[1] === 'tts');
}

function isCount(name: string): boolean {
  return ['retries', 'tts.sample_rate', 'sandbox.concurrency', 'sandbox.per_minute'].includes(name);
}

// A default is kept as what it plainly is; a number only if its digits come back the same.
function plainValue(word: string): FlagDefault {
  if (word === 'true' || word === 'false') return word === 'true';
  return String(Number(word)) === word && Number.isFinite(Number(word)) ? Number(word) : word;
}

/** A copy of a profile with one value set; `undefined` takes it out, and with it what is empty then. */
export function withValue<T extends object>(profile: T, [step, ...rest]: KeyPath, value: unknown): T {
  const copy = { ...profile } as JsonObject;
  const inner = isObject(copy[step]) ? copy[step] : {};
  const next = isPath(rest) ? withValue(inner, rest, value) : value;
  const empty = next === undefined || (isPath(rest) && isObject(next) && Object.keys(next).length === 0);
  if (empty) Reflect.deleteProperty(copy, step);
  else copy[step] = next as JsonObject;
  return copy as T;
}

function isPath(steps: readonly string[]): steps is KeyPath {
  return steps.length > 0;
}
