import type { Job } from '../job.ts';
import { at, isObject, type Json, type JsonObject } from '../json.ts';
import { longName } from '../protocols/compose.ts';
import type { Flag } from '../protocols/protocol.ts';
import { protocols } from '../protocols/registry.ts';
import { speechFlags } from '../speech/flags.ts';

/** The flags of the command that makes jobs of a kind. */
export function flagsOf({ protocol }: Pick<Job, 'protocol'>): readonly Flag[] {
  return protocol === 'tts' ? speechFlags : protocols[protocol].flags;
}

/** What a job was asked for by the flag of a long name, such as `prompt`; of speech, `prompt` is its text. */
export function askedFor(job: Job, name: string): Json | undefined {
  const request = job.request as Json | undefined;
  if (job.protocol === 'tts' && name === 'prompt') return at(request, 'req_params.text');
  const flag = flagsOf(job).find((each) => longName(each) === name);
  const fields = flag === undefined ? [name] : [flag.field, ...(flag.aliases ?? [])];
  return fields.map((field) => at(request, field)).find((value) => value !== undefined);
}

/** {@link askedFor} as a text; undefined where it is none, or was too long to be recorded. */
export function askedText(job: Job, name: string): string | undefined {
  const value = askedFor(job, name);
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** The body of a job as it was recorded, where it is one. */
export function requestOf({ request }: Job): JsonObject | undefined {
  return isObject(request) ? request : undefined;
}
