import { messageOf } from '../errors.ts';
import type { Failure } from '../exchange.ts';
import { withIdleTimeout, type TimeLimits } from '../http/deadline.ts';
import { filledBuffer, releaseBuffer, acquireBuffer } from '../files/reused-buffers.ts';
import { TransportError } from '../http/transport-error.ts';
import type { JsonObject } from '../json.ts';
import { FrameSplitter } from './frames.ts';
import { readFrame, type Frame } from './wire.ts';

/** How a stream of speech ended (specification 3.4). */
export type Ending =
  | { kind: 'whole'; usage?: JsonObject }
  /** An error frame, possibly after audio. */
  | { kind: 'failed'; failure: Failure }
  /** Any end that does not prove success. The audio may be incomplete. */
  | { kind: 'cut'; why: string };

/** The limits of a stream: its time, and the size of its frames. */
export interface StreamLimits extends TimeLimits {
  /** In bytes; the default of the splitter if absent. */
  maxFrameBytes?: number;
  /** Removes secrets from text of the stream that is shown. */
  clean?: ((text: string) => string) | undefined;
}

/**
 * Reads a stream of speech up to its end frame, its first fault or its end, and passes each piece of audio to `write`
 * as it arrives, in order. The time of `write` does not count as idle time. Nothing after the end frame is read.
 * @throws the errors of `write`
 */
export async function receive(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  limits: StreamLimits,
): Promise<Ending> {
  const splitter = new FrameSplitter(limits.maxFrameBytes, limits.clean);
  let why: string | undefined;
  try {
    const ending = await listen(withIdleTimeout(body, limits), write, splitter);
    if (ending !== undefined) return ending;
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    why = messageOf(error);
  }
  splitter.end();
  return { kind: 'cut', why: why ?? splitter.fault ?? 'the stream ended without its end frame' };
}

async function listen(
  body: AsyncIterable<Uint8Array>,
  write: (audio: Uint8Array) => Promise<void>,
  splitter: FrameSplitter,
): Promise<Ending | undefined> {
  let heard = false;
  let usage: JsonObject | undefined;
  for await (const chunk of body) {
    const { audio, ending, usage: latest = usage } = readFrames(splitter, chunk);
    releaseBuffer(chunk);
    usage = latest;
    if (audio.length > 0) await write(audio);
    heard ||= audio.length > 0;
    if (ending?.kind === 'whole' && !heard) return { kind: 'cut', why: 'the stream ended without any audio' };
    if (ending !== undefined) return ending.kind === 'whole' ? { ...ending, usage } : ending;
  }
  return undefined;
}

interface Heard {
  audio: Buffer;
  /** The latest usage received, before the end frame or with it (specification 2.6). */
  usage?: JsonObject;
  ending?: Ending;
}

function readFrames(splitter: FrameSplitter, chunk: Uint8Array): Heard {
  const audio = new Audio();
  let usage: JsonObject | undefined;
  let ending: Ending | undefined;
  for (const frame of splitter.push(chunk)) {
    const read = readFrame(frame, audio.room);
    if ('bytes' in read && read.bytes !== undefined) audio.add(read.bytes);
    if ('usage' in read) usage = read.usage ?? usage;
    ending = endingOf(read);
    if (ending !== undefined) break;
  }
  if (splitter.fault !== undefined) ending ??= { kind: 'cut', why: splitter.fault };
  return { audio: audio.taken(), usage, ending };
}

/** The decoded audio of the frames of one chunk. */
class Audio {
  readonly #buffer = acquireBuffer();
  readonly #pieces: Buffer[] = [];
  #used = 0;
  #size = 0;

  /** Free space for the next piece. */
  get room(): Buffer {
    return this.#buffer.subarray(this.#used);
  }

  /** Adds a decoded piece, which may be at the beginning of {@link room}. */
  add(piece: Buffer): void {
    this.#pieces.push(piece);
    this.#size += piece.length;
    if (piece.buffer === this.#buffer.buffer) this.#used += piece.length;
  }

  /** Returns the whole audio. */
  taken(): Buffer {
    return this.#size === this.#used ? filledBuffer(this.#buffer, this.#used) : Buffer.concat(this.#pieces);
  }
}

function endingOf(frame: Frame): Ending | undefined {
  if (frame.kind === 'end') return { kind: 'whole' };
  if (frame.kind === 'error') return { kind: 'failed', failure: frame.failure };
  return frame.kind === 'fault' ? { kind: 'cut', why: frame.why } : undefined;
}
