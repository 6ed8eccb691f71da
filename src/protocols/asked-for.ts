import type { Job } from '../job.ts';
import { at, type Json } from '../json.ts';
import { longName } from './compose.ts';
import { findProtocol } from './named.ts';

type Request = Pick<Job, 'protocol' | 'request'>;

/** Returns what a job's request has for the flag of a long name, such as `seed`; the text of speech is its `prompt`. */
export function askedFor({ protocol, request }: Request, name: string): Json | undefined {
  if (protocol === 'tts' && name === 'prompt') return at(request as Json, 'req_params.text');
  const flag = findProtocol(protocol)?.flags.find((each) => longName(each) === name);
  const fields = flag === undefined ? [name] : [flag.field, ...(flag.aliases ?? [])];
  return fields.map((field) => at(request as Json, field)).find((value) => value !== undefined);
}

/** Returns how much a job asked for, as a text that is the same for all jobs of one size. */
export function sizeOf(job: Request): string {
  const parts = ['duration', 'resolution', 'sample-count'].map((name) => askedFor(job, name) ?? '');
  return parts.map((part) => JSON.stringify(part)).join(' ');
}

/** Returns the prompt of a job, or the text that it speaks; undefined if its record holds none. */
export function promptOf(job: Request): string | undefined {
  const prompt = askedFor(job, 'prompt');
  return typeof prompt === 'string' && prompt !== '' ? prompt : undefined;
}
