import type { Job } from '../job.ts';
import { at, isObject, type Json } from '../json.ts';
import { longName } from './compose.ts';
import { videoCount } from './protocol.ts';
import { findProtocol } from './registry.ts';

type Request = Pick<Job, 'protocol' | 'request'>;

/**
 * Returns a flag's value in a job's request, by the flag's long name, such as `seed`. For speech, the value of
 * `prompt` is the text.
 */
export function requestedValue({ protocol, request }: Request, name: string): Json | undefined {
  if (protocol === 'tts' && name === 'prompt') return at(request as Json, 'req_params.text');
  const flag = findProtocol(protocol)?.flags.find((each) => longName(each) === name);
  const fields = flag === undefined ? [name] : [flag.field, ...(flag.aliases ?? [])];
  return fields.map((field) => at(request as Json, field)).find((value) => value !== undefined);
}

/**
 * Returns the minimum and maximum length of the short side, in pixels, that a resolution can mean. Examples are `720p`,
 * `1280x720` and `2K` (1080 lines in cinemas, 1440 on screens). Returns undefined for any other word.
 */
export function shortSides(resolution: string): readonly [number, number] | undefined {
  const text = resolution.trim().toLowerCase();
  const [, first, second] = /^(\d{2,5})\s*(?:[x*×]\s*(\d{2,5})|p)$/.exec(text) ?? [];
  if (first === undefined) return sidesOfK.get(text);
  const side = Math.min(Number(first), Number(second ?? first));
  return [side, side];
}

const sidesOfK = new Map<string, readonly [number, number]>([
  ['2k', [1080, 1440]],
  ['4k', [2160, 2160]],
  ['8k', [4320, 4320]],
]);

/** Returns an aspect ratio such as `16:9` as width divided by height; undefined for words such as `adaptive`. */
export function ratioOf(text: string): number | undefined {
  const [, width, height] = /^\s*(\d{1,4})\s*:\s*(\d{1,4})\s*$/.exec(text) ?? [];
  const ratio = Number(width) / Number(height);
  return Number.isFinite(ratio) && ratio > 0 ? ratio : undefined;
}

/** Returns a string that is the same for all jobs with the same duration, resolution and number of videos. */
export function sizeOf(job: Request): string {
  const parts = ['duration', 'resolution', 'sample-count'].map((name) => requestedValue(job, name) ?? '');
  return parts.map((part) => JSON.stringify(part)).join(' ');
}

/** Returns the number of videos that a job requests; 1 for speech. */
export function requestedVideos({ protocol, request }: Request): number {
  const found = findProtocol(protocol);
  return found !== undefined && isObject(request) ? videoCount(found, request) : 1;
}

/** Returns how many of the requested videos the gateway did not return for a job that has succeeded. */
export function missingVideos(job: Request & Pick<Job, 'state' | 'record'>): number {
  const { results } = job.record;
  return job.state === 'succeeded' && results !== undefined ? Math.max(0, requestedVideos(job) - results) : 0;
}

/** Returns a job's prompt or, for speech, its text; undefined if the job's record contains neither. */
export function promptOf(job: Request): string | undefined {
  const prompt = requestedValue(job, 'prompt');
  return typeof prompt === 'string' && prompt !== '' ? prompt : undefined;
}
