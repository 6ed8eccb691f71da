import type { Job, JobKind } from '../job.ts';
import { at, type Json } from '../json.ts';

// By the fields' native names, since a listing loads no protocol; `test/jobs/asked-for.test.ts` holds them to the flags.
const promptField: Record<JobKind, string> = {
  a: 'instances.0.prompt',
  b: 'Prompt',
  c: 'prompt',
  tts: 'req_params.text',
};

/** The prompt of a job, or the text that it speaks; undefined where its record holds none. */
export function promptOf({ protocol, request }: Pick<Job, 'protocol' | 'request'>): string | undefined {
  const prompt = at(request as Json, promptField[protocol]);
  return typeof prompt === 'string' && prompt !== '' ? prompt : undefined;
}
