import type { Reply } from '../../exchange.ts';
import { at, isObject, textAt, type Json } from '../../json.ts';
import type { Result, Source } from '../protocol.ts';

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

/** A sample as a file to fetch, and why its content inside the answer is no source, where it is there and is none. */
export function resultOf(sample: Json, reply: Reply): { result: Result; fault?: string } {
  const mime = types.map((path) => textAt(sample, path)).find((type) => type?.includes('/'));
  const { source, fault } = inlineSource(sample, reply);
  const sources = [source, ...addresses.map((path) => addressSource(textAt(sample, path)))];
  return { result: { sources: sources.filter((found) => found !== undefined), mime }, fault };
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
  if (media === undefined) return { fault: 'the content was not saved as it arrived' };
  return media.fault === undefined ? { source: { kind: 'inline', index } } : { fault: media.fault };
}

// Taken exactly as it came: it may be signed (specification 4.1, "the complete video.uri").
function addressSource(address: string | undefined): Source | undefined {
  if (address === undefined || /[\s\\\p{Cc}\p{Cf}]/u.test(address)) return undefined;
  if (/^https?:\/\//i.test(address) && URL.canParse(address))
    return { kind: 'url', url: address, key: 'own-site' };
  return /^\/[^/]/.test(address) ? { kind: 'gateway', path: address } : undefined;
}
