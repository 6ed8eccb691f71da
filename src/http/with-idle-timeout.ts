import { longestTimer, type Deadline } from '../clock.ts';
import { TransportError } from './transport-error.ts';

/** How long a body may take. */
export interface TimeLimits {
  /** The longest silence, ms. */
  idleMs: number;
  /** When it is given up, however much comes. */
  deadline: Deadline;
}

/**
 * A body as it arrives, given up if nothing comes for too long, or if its time is up. What its reader takes for
 * each chunk counts as no silence. The connection is the caller's to close.
 * @throws TransportError if it is given up, and whatever the body throws.
 */
export async function* withIdleTimeout(
  body: AsyncIterable<Uint8Array>,
  limits: TimeLimits,
): AsyncGenerator<Uint8Array, void> {
  const chunks = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await inTime(chunks.next(), limits);
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // A read that is pending ends when the connection does.
    chunks.return?.().catch(() => undefined);
  }
}

async function inTime<T>(next: Promise<T>, { idleMs, deadline }: TimeLimits): Promise<T> {
  const leftMs = deadline.leftMs();
  const why = leftMs < idleMs ? 'the time to wait ran out' : `nothing came for ${idleMs / 1000} s`;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new TransportError('sent', 'timeout', why));
    if (leftMs <= 0) giveUp();
    else timer = setTimeout(giveUp, Math.min(idleMs, leftMs, longestTimer));
  });
  return Promise.race([late, next]).finally(() => clearTimeout(timer));
}
