import type { Job, JobKind } from '../job.ts';
import { at, type Json } from '../json.ts';

// By the fields' native names, since a listing loads no protocol; `test/jobs/asked-for.test.ts` holds them to the flags.
const promptField: Record<JobKind, string> = {
  a: 'instances.0.prompt',
  b: 'Prompt',
  c: 'prompt',
  tts: 'req_params.text',
};

// What tells how much there is to do for a video, by the fields' native names.
const sizeFields: Partial<Record<JobKind, string[]>> = {
  a: ['parameters.durationSeconds', 'parameters.resolution', 'parameters.sampleCount'],
  b: ['OutputConfig.Duration', 'OutputConfig.Resolution'],
  c: ['duration', 'seconds', 'resolution'],
};

/** How much a job asked for, in words that are the same for all jobs of one size. */
export function sizeOf({ protocol, request }: Pick<Job, 'protocol' | 'request'>): string {
  const fields = sizeFields[protocol] ?? [];
  return fields.map((field) => JSON.stringify(at(request as Json, field) ?? '')).join(' ');
}

/** The prompt of a job, or the text that it speaks; undefined where its record holds none. */
export function promptOf({ protocol, request }: Pick<Job, 'protocol' | 'request'>): string | undefined {
  const prompt = at(request as Json, promptField[protocol]);
  return typeof prompt === 'string' && prompt !== '' ? prompt : undefined;
}
