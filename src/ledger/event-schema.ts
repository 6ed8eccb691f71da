import { decimalPattern } from '../decimal.ts';
import { z } from 'zod';

const text = z.string().max(1024 * 1024);
const error = z.object({ code: text, message: text, native_code: text.optional() });
const owner = z.object({ pid: z.number(), start: text, host: text, instance: text.optional() });
const state = z.enum([
  'prepared',
  'sending',
  'unknown',
  'queued',
  'running',
  'succeeded',
  'failed',
  'rejected',
]);
const attempt = z.number().int().nonnegative();
const progress = z.number().optional();
const at = z.iso.datetime().optional();

const event = (type: string, shape: z.ZodRawShape): z.ZodObject =>
  z.object({ type: z.literal(type), at, ...shape });

const goal = {
  command: z.enum(['submit', 'wait', 'fetch', 'rm']).optional(),
  ask: z.enum(['accept', 'finish', 'file']),
  output: text.optional(),
};
const reply = z.object({
  status: z.number(),
  headers: z.record(z.string(), text),
  text,
  complete: z.boolean(),
});
const length = z.number().nonnegative().optional();
const delivered = z.object({
  duration: length,
  width: length,
  height: length,
  fps: length,
  audio: z.boolean(),
});
const value = z.union([text, z.number(), z.boolean()]);
const mismatch = z.object({
  field: z.enum(['duration', 'resolution', 'aspect_ratio', 'fps', 'audio']),
  asked: value,
  delivered: value,
});
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const file = z.object({
  path: text,
  sample: z.number().int().min(1).optional(),
  bytes: z.number().nonnegative(),
  sha256,
  mime: text.optional(),
  delivered: delivered.optional(),
  mismatches: z.array(mismatch).max(16).optional(),
  provenance: z
    .array(z.enum(['c2pa', 'xmp', 'aigc']))
    .max(3)
    .optional(),
  unmarked_sha256: sha256.optional(),
});

const amount = z.string().regex(decimalPattern);
const money = {
  cost: z.object({ at_most: amount, per_10k_characters: amount.optional() }).optional(),
  reservation: text.optional(),
  budgets: z.array(text).optional(),
  limit: amount.optional(),
};

/**
 * The schema of an exported job's events (`RecordedEvent` in job.ts). The events may come from an untrusted source, so
 * each member is checked. `null` represents a line that could not be read when the job was exported.
 */
export const exportedEvents = z
  .array(
    z.union([
      z.null(),
      event('prepared', {
        protocol: z.string().regex(/^[a-z][a-z0-9-]{0,31}$/),
        base_url: text,
        fingerprint: text,
        account: text,
        model: text.optional(),
        key: text.optional(),
        variant: text.optional(),
        tags: z.array(text).max(32).optional(),
        request: z.unknown().optional(),
        elided: z.boolean().optional(),
        endpoint: text.optional(),
      }),
      event('began', { run: text, owner, ...goal }),
      event('sending', { attempt, owner, ...money }),
      event('reply', { attempt, reply }),
      event('unavailable', { attempt, error }),
      event('accepted', {
        handle: text.min(1),
        native_status: text.optional(),
        warning: text.optional(),
        adopted: z.literal(true).optional(),
        instead_of: text.optional(),
      }),
      event('rejected', { attempt: attempt.optional(), error }),
      event('unknown', { attempt: attempt.optional(), error, handle: text.optional() }),
      event('observed', { state, native_status: text, progress, revokes: z.literal(true).optional() }),
      event('finished', {
        state: z.enum(['succeeded', 'failed']),
        native_status: text,
        progress,
        error: error.optional(),
        results: z.number().int().nonnegative().optional(),
        usage: z.unknown().optional(),
        details: z.unknown().optional(),
      }),
      event('file', { file, instead_of: text.optional() }),
      event('uploading', { url: text, id: text.optional(), since: z.iso.datetime() }),
      event('delivered', { run: text }),
      event('detached', { run: text, exit_code: z.number() }),
      event('resolved', {
        attempt: attempt.optional(),
        how: z.enum(['adopted', 'not-created', 'resubmit']),
        instead_of: text.optional(),
      }),
      event('rated', { rating: z.number().int().min(1).max(5).optional(), note: text.optional() }),
    ]),
  )
  .min(1);
