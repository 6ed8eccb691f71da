import type { Clock, Deadline } from '../../clock.ts';
import { messageOf, MgwError, type ErrorCode } from '../../errors.ts';
import type { Failure, Reply } from '../../exchange.ts';
import { printableLine } from '../../printable.ts';
import { decodeBody, isCompression, readBounded } from '../body.ts';
import { readFailure } from '../failures.ts';
import { contentLengthOf } from '../send-request.ts';
import { cleanHeaders } from '../redacting-client.ts';
import { TransportError } from '../transport-error.ts';
import { readBatches } from './chunks.ts';
import { follow, type DownloadGateway, type MediaReply } from './follow.ts';
import { watchIdle, type IdleWatch } from '../deadline.ts';
import { headBytes, isText, isTextType } from '../../media/mp4.ts';
import type { PartFile } from '../../files/part-file.ts';
import {
  isSameRepresentation,
  identifiesRepresentation,
  readContentRange,
  strongValidator,
} from './validator.ts';

/** Dependencies and limits of one attempt. */
export interface AttemptOptions {
  gateway: DownloadGateway;
  clock: Clock;
  /** The time at which the download is abandoned. */
  deadline: Deadline;
  signal?: AbortSignal;
  connectTimeoutMs: number;
  idleTimeoutMs: number;
  notReady: (reply: Reply) => boolean;
  /** Whether to request the whole file even if a part of it exists. The part is kept until the file arrives. */
  ignorePart?: boolean;
  /** Called when bytes have arrived, possibly before they are on disk. */
  onBytes: () => void;
}

/** The result of one attempt. */
export type Attempt =
  /** All announced bytes were received. */
  | { kind: 'received'; contentType?: string }
  | { kind: 'expired' | 'not-ready'; failure: Failure }
  | { kind: 'refused'; failure: Failure; origin: string }
  /** The attempt failed, but another attempt may succeed. */
  | { kind: 'again'; failure: Failure };

const batchBytes = 1024 * 1024;
const batchMs = 1000;
const textBytes = 64 * 1024;

/**
 * Sends one GET that continues the partial file if that is safe, and otherwise starts from the beginning.
 * @throws MgwError if a retry cannot help: result_corrupt, result_unavailable, local_io.
 */
export async function attempt(
  source: { url: string; key: 'own-site' | 'never' },
  part: PartFile,
  options: AttemptOptions,
): Promise<Attempt> {
  const { clock, deadline, idleTimeoutMs: idleMs, signal, ignorePart = false } = options;
  const watch = watchIdle(clock, { idleMs, deadline }, signal);
  let reply: MediaReply | undefined;
  try {
    const { gateway, connectTimeoutMs } = options;
    reply = await follow(source, {
      gateway,
      connectTimeoutMs,
      headers: ignorePart ? {} : rangeOf(part),
      signal: watch.signal,
      onHead: () => watch.touch(),
    });
    return await handleReply(reply, source.key, part, { ...options, watch });
  } catch (error) {
    if (error instanceof MgwError) throw error;
    signal?.throwIfAborted();
    return retryLater('unreachable', watch.signal.aborted ? messageOf(watch.signal.reason) : reasonOf(error));
  } finally {
    reply?.message.destroy();
    watch.stop();
  }
}

function rangeOf({ length, validator }: PartFile): Record<string, string> {
  return validator === undefined ? {} : { range: `bytes=${length}-`, 'if-range': validator };
}

function retryLater(code: ErrorCode, message: string): Attempt {
  return { kind: 'again', failure: { code, message } };
}

// Returns the error's message. Throws if a retry cannot help, for example because of an invalid certificate or a
// private address.
function reasonOf(error: unknown): string {
  if (!(error instanceof TransportError)) return printableLine(messageOf(error), 300);
  const { reason, message, isPermanent } = error;
  if (!isPermanent) return message;
  const code = reason === 'private_address' ? 'result_unavailable' : 'unreachable';
  throw new MgwError(code, message, { charged: 'yes', retry: 'resume', cause: error });
}

interface RunningAttempt extends AttemptOptions {
  watch: IdleWatch;
}

async function handleReply(
  reply: MediaReply,
  key: string,
  part: PartFile,
  work: RunningAttempt,
): Promise<Attempt> {
  const { status } = reply;
  if (status === 200) return receiveWhole(reply, part, work);
  if (status === 206) return receiveRange(reply, part, work);
  if (status === 416 && part.validator !== undefined) return rangeNotSatisfiable(reply, part);
  const text = await textOf(reply, decodeBody(reply.message, reply.headers['content-encoding']));
  const failure = readFailure(text);
  if (work.notReady(text)) return { kind: 'not-ready', failure };
  if (status === 429 || status === 408 || status === 425 || status >= 500 || status < 300)
    return { kind: 'again', failure };
  const isForeign = key === 'own-site' && !reply.isKeySent && reply.redirects === 0;
  if (isForeign && (status === 401 || status === 403))
    return { kind: 'refused', failure, origin: reply.url.origin };
  return { kind: 'expired', failure };
}

async function textOf(reply: MediaReply, body: AsyncIterable<Uint8Array>): Promise<Reply> {
  const { bytes, complete } = await readBounded(body, textBytes);
  return {
    status: reply.status,
    headers: cleanHeaders(reply.headers, reply.clean),
    text: reply.clean(new TextDecoder().decode(bytes)),
    complete: complete && reply.message.complete,
  };
}

async function receiveWhole(reply: MediaReply, part: PartFile, work: RunningAttempt): Promise<Attempt> {
  const contentType = reply.headers['content-type'];
  const encoding = reply.headers['content-encoding'] ?? '';
  if (isCompression(encoding)) return refuseEncoding(reply, encoding, work);
  const body = bodyOf(reply, work);
  const firstBatch = await readFirstBatch(body);
  if (!Array.isArray(firstBatch)) return retryLater('result_corrupt', firstBatch);
  if (isText(Buffer.concat(firstBatch).subarray(0, headBytes), contentType))
    return textInsteadOfMedia(await textOf(reply, withFirstBatch(firstBatch, body)), work);
  const total = contentLengthOf(reply.headers);
  await part.restart({ validator: strongValidator(reply.headers), total });
  await part.write(firstBatch);
  return receive(reply, body, part, work);
}

// Returns the first bytes of a body, or why there are none.
async function readFirstBatch(body: AsyncGenerator<Buffer[], void>): Promise<Buffer[] | string> {
  try {
    const { value } = await body.next();
    return value ?? 'the file is empty';
  } catch (error) {
    return `the transfer stopped before the first byte (${printableLine(messageOf(error), 300)})`;
  }
}

// Refuses a compressed file. Media are never decompressed, because mgw could not check their length, and a small body
// could expand without limit.
async function refuseEncoding(reply: MediaReply, encoding: string, work: RunningAttempt): Promise<Attempt> {
  if (isTextType(reply.headers['content-type']))
    return textInsteadOfMedia(await textOf(reply, decodeBody(reply.message, encoding)), work);
  throw corrupt(
    `${reply.url.host} sent the file with the encoding ${printableLine(encoding, 40)}, which was not requested`,
  );
}

function textInsteadOfMedia(text: Reply, { notReady }: RunningAttempt): Attempt {
  const failure = readFailure(text);
  if (notReady(text)) return { kind: 'not-ready', failure };
  throw corrupt(
    `The address returned text instead of the file: ${printableLine(failure.message, 500)}`,
    failure,
  );
}

async function* withFirstBatch(first: Buffer[], rest: AsyncIterable<Buffer[]>): AsyncIterable<Uint8Array> {
  yield* first;
  for await (const batch of rest) yield* batch;
}

async function receiveRange(reply: MediaReply, part: PartFile, work: RunningAttempt): Promise<Attempt> {
  const { validator, length } = part;
  const range = readContentRange(reply.headers['content-range']);
  const total = range?.total ?? part.total;
  // The Content-Length may have been too large. It is replaced by a smaller size from a response for the same
  // representation.
  const isProven = identifiesRepresentation(reply.headers, validator);
  const announced = part.total ?? total;
  const isNext =
    range?.start === length &&
    total !== undefined &&
    announced !== undefined &&
    (total === announced || (isProven && total < announced));
  const isPlain = !isCompression(reply.headers['content-encoding']);
  const isSame = validator !== undefined && isSameRepresentation(reply.headers, validator);
  if (!isNext || !isPlain || !isSame) return startOver(reply, part, 'a range that was not requested');
  part.total = total;
  return receive(reply, bodyOf(reply, work), part, work);
}

async function rangeNotSatisfiable(reply: MediaReply, part: PartFile): Promise<Attempt> {
  const statedTotal = readContentRange(reply.headers['content-range'])?.total;
  // The Content-Length may have been too large. The size in this response is correct if the response is for the
  // same representation.
  if (statedTotal === part.length && identifiesRepresentation(reply.headers, part.validator))
    part.total = statedTotal;
  // A body of unknown length is complete if the response to a request for the rest states the length that was received.
  const total = part.total ?? statedTotal;
  if (part.length !== total || (statedTotal ?? total) !== total)
    return startOver(reply, part, 'no such range');
  return { kind: 'received' };
}

async function startOver(reply: MediaReply, part: PartFile, problem: string): Promise<Attempt> {
  await part.restart();
  return retryLater('result_corrupt', `${reply.url.host} responded with ${problem}`);
}

function bodyOf(reply: MediaReply, { clock, watch }: RunningAttempt): AsyncGenerator<Buffer[], void> {
  const sizes = { minFirstBytes: headBytes, minBytes: batchBytes, maxAgeMs: batchMs };
  return readBatches(reply.message, { ...sizes, clock, watch });
}

async function receive(
  reply: MediaReply,
  body: AsyncIterable<Buffer[]>,
  part: PartFile,
  { signal, watch, onBytes }: RunningAttempt,
): Promise<Attempt> {
  onBytes();
  const breakReason = await writeBody(body, part, onBytes);
  await part.settle();
  onBytes();
  signal?.throwIfAborted();
  if (watch.signal.aborted) return retryLater('unreachable', messageOf(watch.signal.reason));
  if (breakReason !== undefined) return retryLater('result_corrupt', brokenOffMessage(part, breakReason));
  if (part.length < (part.total ?? 0))
    return retryLater('result_corrupt', brokenOffMessage(part, 'the range ended'));
  return { kind: 'received', contentType: reply.headers['content-type'] };
}

// Returns why the body was cut off; undefined if it was not. Throws disk errors.
async function writeBody(
  body: AsyncIterable<Buffer[]>,
  part: PartFile,
  onBytes: () => void,
): Promise<string | undefined> {
  try {
    for await (const batch of body) {
      await part.write(batch);
      onBytes();
    }
    return undefined;
  } catch (error) {
    if (error instanceof MgwError) throw error;
    return printableLine(messageOf(error), 300);
  }
}

function brokenOffMessage({ length, total }: PartFile, why: string): string {
  return `the transfer stopped at byte ${length}${total === undefined ? '' : ` of ${total}`} (${why})`;
}

/** Returns the error (exit 9) for an address that serves something other than the file. */
export function corrupt(message: string, failure?: Failure): MgwError {
  return new MgwError('result_corrupt', message.endsWith('.') ? message : `${message}.`, {
    charged: 'yes',
    retry: 'resume',
    requestId: failure?.requestId,
  });
}
