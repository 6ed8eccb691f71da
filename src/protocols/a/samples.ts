import type { Reply } from '../../exchange.ts';
import { at, isObject, textAt, type Json } from '../../json.ts';
import type { Result, Source } from '../protocol.ts';
import { shownValue } from '../violations.ts';

/**
 * Members whose strings are the video itself: `encodedVideo` (specification 2.2), and what gateways leak of
 * other forms of the same upstream. Every string under these names must be diverted while the answer streams,
 * short ones too (a threshold of 0): one that stayed text is no source.
 */
export const inlineMedia = ['encodedVideo', 'bytesBase64Encoded', 'videoBytes', 'video'] as const;

// The specification's place first.
const lists = [
  'generateVideoResponse.generatedSamples',
  'generateVideoResponse.generatedVideos',
  'generatedSamples',
  'generatedVideos',
  'videos',
];
const addresses = ['video.uri', 'uri', 'video.gcsUri', 'gcsUri'];
const types = ['video.encoding', 'video.mimeType', 'encoding', 'mimeType'];

/** The samples of an operation's `response`; undefined where the place for them holds something else. */
export function samplesOf(response: Json): Json[] | undefined {
  const holder = at(response, 'generateVideoResponse') ?? {};
  const found = lists.map((path) => at(response, path) ?? []);
  if (!isObject(holder) || !found.every((list) => Array.isArray(list))) return undefined;
  const samples = found.find((list) => list.length > 0);
  if (samples !== undefined) return samples;
  return inlineOf(response) === undefined && !isObject(at(response, 'video')) ? [] : [response];
}

/** A sample as a file to fetch, and what is wrong with it, in words that follow "sample 1". */
export function resultOf(sample: Json, reply: Reply): { result: Result; fault?: string } {
  const mime = types.map((path) => textAt(sample, path)).find((type) => type?.includes('/'));
  const inline = inlineSource(sample, reply);
  const given = addresses.map((path) => textAt(sample, path)).filter((address) => address !== undefined);
  const sources = [inline.source, ...given.map(addressSource)].filter((found) => found !== undefined);
  const fault = inline.fault ?? (sources.length === 0 ? nowhere(given) : undefined);
  return { result: { sources, mime }, fault };
}

// What follows a question mark may be a signature, what stands before an @ a password.
function nowhere([address]: string[]): string {
  if (address === undefined) return 'has neither content nor an address to fetch';
  return `is at ${shownValue(address.replace(/[?#].*$/s, '?…'))}, from where nothing can be fetched`;
}

function inlineOf(sample: Json): string | undefined {
  const paths = inlineMedia.flatMap((name) => [`video.${name}`, name]);
  return paths.map((path) => textAt(sample, path)).find((text) => text !== undefined);
}

function inlineSource(sample: Json, reply: Reply): { source?: Source; fault?: string } {
  const place = inlineOf(sample);
  if (place === undefined) return {};
  const index = Number(/^mgw-spool:(\d+)$/.exec(place)?.[1]);
  const media = reply.spooled?.[index];
  if (media === undefined) return { fault: 'is broken: the content was not saved as it arrived' };
  return media.fault === undefined
    ? { source: { kind: 'inline', index } }
    : { fault: `is broken: ${media.fault}` };
}

// Taken exactly as it came: it may be signed (specification 4.1, "the complete video.uri").
function addressSource(address: string): Source | undefined {
  if (/[\s\\\p{Cc}\p{Cf}]/u.test(address)) return undefined;
  if (/^https?:\/\//i.test(address) && URL.canParse(address))
    return { kind: 'url', url: address, key: 'own-site' };
  return /^\/[^/]/.test(address) ? { kind: 'gateway', path: address } : undefined;
}
