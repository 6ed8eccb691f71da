import type { Job } from '../job.ts';
import { type Json, canonicalJson, isObject } from '../json.ts';
import { isSameGateway, type Order, recordedBody } from './order.ts';

/**
 * Describes how an order differs from the request of a job with another fingerprint or variant: the gateway, the
 * protocol and the fields, eight lines at most. Empty if both send the same request, although one of the commands left
 * a field to a default.
 * @param isHidden whether to omit the values of a field
 */
export function changesFrom(
  job: Job,
  { protocol, body, variant }: Pick<Order, 'protocol' | 'body' | 'variant'>,
  gateway: string,
  isHidden?: (path: string) => boolean,
): string[] {
  const changes = differences(job.request as Json, recordedBody(body).request, isHidden);
  if (job.protocol !== protocol) changes.unshift(`the protocol was ${job.protocol}, is ${protocol}`);
  if (!isSameGateway(job.base_url, gateway))
    changes.unshift(`the gateway was ${shownGateway(job.base_url)}, is ${shownGateway(gateway)}`);
  // A WAV file is requested as PCM, so both have the same body.
  if (changes.length === 0 && job.record.variant !== variant)
    return [`the format was ${job.record.variant ?? 'pcm'}, is ${variant ?? 'pcm'}`];
  return changes.slice(0, 8);
}

// Omits credentials and the query, which an imported record may contain. The sandbox's name is not a URL.
function shownGateway(gateway: string): string {
  if (!URL.canParse(gateway)) return gateway;
  const { origin, pathname } = new URL(gateway);
  return `${origin}${pathname}`.replace(/\/$/, '');
}

/**
 * Returns the differences between two bodies, one line per field: `duration was 5, is 8`. Shows only the text around
 * the first difference of long values. Omits the values of fields for which `isHidden` returns true.
 */
export function differences(
  before: Json | undefined,
  now: Json | undefined,
  isHidden: (path: string) => boolean = () => false,
  path = '',
): string[] {
  if (canonicalJson(before) === canonicalJson(now)) return [];
  if (isObject(before) && isObject(now)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
    return names.flatMap((name) =>
      differences(before[name], now[name], isHidden, path === '' ? name : `${path}.${name}`),
    );
  }
  if (isHidden(path)) return [`${path || 'body'} differs`];
  const [was, is] = formatPair(before, now);
  return [`${path || 'body'} was ${was}, is ${is}`];
}

/** The maximum length of a value that is shown whole, in UTF-16 code units. */
const maxWhole = 80;
// The number of code units that are shown before and after the first difference of longer values.
const [shownBefore, shownAfter] = [20, 40];

// White space and invisible characters, except the first of several spaces.
const invisible =
  /(?<= ) |[^\S ]|[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const nonAscii = /(?<= ) |[^ -~]/gu;

// Formats two different values so that their text looks different.
function formatPair(before: Json | undefined, now: Json | undefined): [was: string, is: string] {
  const [a, b] = [textOf(before), textOf(now)];
  const isShort = Math.max(a.length, b.length) <= maxWhole;
  const from = isShort ? 0 : Math.max(0, firstDifference(a, b) - shownBefore);
  const until = isShort ? maxWhole : from + shownBefore + shownAfter;
  const format = (value: Json | undefined, escaped: RegExp): string => excerpt(value, from, until, escaped);
  const pair: [string, string] = [format(before, invisible), format(now, invisible)];
  // Equal text may have several encodings: é is one code point, or an e and an accent.
  return pair[0].normalize('NFKC') === pair[1].normalize('NFKC')
    ? [format(before, nonAscii), format(now, nonAscii)]
    : pair;
}

function textOf(value: Json | undefined): string {
  if (value === undefined) return 'absent';
  return typeof value === 'string' ? value : canonicalJson(value);
}

function firstDifference(a: string, b: string): number {
  let index = 0;
  while (index < a.length && a[index] === b[index]) index += 1;
  return index;
}

// Never splits a surrogate pair.
function excerpt(value: Json | undefined, from: number, until: number, escaped: RegExp): string {
  const text = textOf(value);
  const start = isInsidePair(text, from) ? from - 1 : from;
  const end = isInsidePair(text, until) ? until + 1 : until;
  const cropped = `${start > 0 ? '…' : ''}${text.slice(start, end)}${end < text.length ? '…' : ''}`;
  const quoted = typeof value === 'string' ? JSON.stringify(cropped) : cropped;
  return quoted.replace(escaped, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

function isInsidePair(text: string, index: number): boolean {
  return /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(index - 1, index + 1));
}
