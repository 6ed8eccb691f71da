import { z } from 'zod';
import { parseDecimal } from '../../decimal.ts';
import { MgwError } from '../../errors.ts';
import { isObject, tryParseJson, type JsonObject } from '../../json.ts';
import { isKeyName } from '../../key-name.ts';
import { printableLine } from '../../printable.ts';
import { findProtocol, protocolNames } from '../../protocols/registry.ts';
import type { Row } from '../manifest/row.ts';

const headSchema = z.strictObject({
  /** The `base_url` of the records: a worker takes only rows for its own gateway. */
  gateway: z.string(),
  /** The maximum number of tasks in progress at the gateway, over all workers. */
  concurrency: z.number().int().min(1).max(10_000),
  perMinute: z.number().int().min(1).max(1_000_000).optional(),
  /** An amount in plain digits. */
  budget: z.string().refine(isDecimal).optional(),
  sidecar: z.boolean().optional(),
});

/** The options of an enqueued batch, the same on every machine. */
export type QueuedHead = z.infer<typeof headSchema>;

const common = {
  index: z.number().int().positive(),
  line: z.number().int().nonnegative(),
  id: z.string().refine(isKeyName),
  /** Below the folder of the worker's -o. */
  output: z.string().optional(),
  tags: z.array(z.string().refine(isKeyName)).max(32),
};

// No field names a file to read: the row holds the content.
const rowSchema = z.discriminatedUnion('kind', [
  z.strictObject({
    ...common,
    kind: z.enum(protocolNames),
    body: z.custom<JsonObject>(isObject),
    endpoint: z.string().optional(),
  }),
  z.strictObject({
    ...common,
    kind: z.literal('tts'),
    text: z.string(),
    over: z.string().optional(),
    flags: z.strictObject({
      speaker: z.string().optional(),
      format: z.string().optional(),
      'sample-rate': z.string().optional(),
    }),
    set: z.array(z.string()),
  }),
]);

/** A row as the queue holds it. */
export type QueuedRow = z.infer<typeof rowSchema>;

function isDecimal(text: string): boolean {
  try {
    return parseDecimal(text) !== undefined;
  } catch {
    return false;
  }
}

/** Parses the options of an enqueued batch. @throws MgwError('local_io') if the database holds something else. */
export function parseHead(batch: string, text: string): QueuedHead {
  const parsed = headSchema.safeParse(tryParseJson(text));
  if (parsed.success && isKeyName(batch)) return parsed.data;
  throw new MgwError(
    'local_io',
    `The queue's entry of the batch ${printableLine(batch, 100)} is damaged. Enqueue its file again.`,
  );
}

/** Parses a row of the queue. @throws MgwError('usage') if the database holds something else. */
export function parseRow(id: string, text: string): Row {
  const { data: row } = rowSchema.safeParse(tryParseJson(text));
  const isKnownEndpoint = (given: QueuedRow & { endpoint?: string | undefined }): boolean =>
    given.endpoint === undefined || findProtocol(given.kind)?.endpoints?.includes(given.endpoint) === true;
  if (row?.id === id && isKnownEndpoint(row)) return { flags: {}, set: [], ...row };
  throw new MgwError('usage', `The row ${printableLine(id, 100)} of the queue is damaged.`);
}
