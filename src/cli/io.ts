import { fstatSync, readSync, statSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { type Clock, type Deadline, maxTimerMs } from '../clock.ts';
import { type Charged, MgwError, systemCode, localError, usageError } from '../errors.ts';
import type { Signals } from '../payment/pay-once.ts';

/** A process's standard streams, environment and clock. Commands use this interface instead of `process`. */
export interface Io {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number; fd?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number; fd?: number };
  env: NodeJS.ProcessEnv;
  /** Default: the system clock. */
  clock?: Clock;
}

/** Returns the width of a terminal in columns; undefined for other streams, which accept lines of any length. */
export function columnsOf(stream: { isTTY?: boolean; columns?: number }): number | undefined {
  return stream.isTTY === true && (stream.columns ?? 0) > 0 ? stream.columns : undefined;
}

/**
 * Whether stdout and stderr are the same terminal, pipe or file, so that output on one need not be repeated on the
 * other.
 */
export function isOneOutput({ stdout, stderr }: Pick<Io, 'stdout' | 'stderr'>): boolean {
  if (stdout.fd === undefined || stderr.fd === undefined) return false;
  const [outStat, errStat] = [fstatSync(stdout.fd), fstatSync(stderr.fd)];
  // Windows has no inode number for a pipe.
  const isKnown = outStat.ino !== 0 || stdout.isTTY === true;
  return (
    isKnown && outStat.ino === errStat.ino && outStat.dev === errStat.dev && stdout.isTTY === stderr.isTTY
  );
}

/**
 * Whether a stream was closed when the process started. In that case, Node opens /dev/null for reading and writing, as
 * does a program that discards the output of another program (Python's `DEVNULL`). A shell's `> /dev/null` opens the
 * file only for writing. Always false on Windows.
 */
export function isClosed({ fd }: Io['stdout']): boolean {
  try {
    if (fd === undefined || fstatSync(fd).rdev !== statSync('/dev/null').rdev) return false;
    readSync(fd, Buffer.alloc(1));
    return true;
  } catch {
    return false;
  }
}

/**
 * Writes text, and resolves when the system has accepted it. A closed pipe (`mgw … | head`) is not an error.
 * @throws MgwError('local_io') with `charged` if the stream cannot be written, for example because the disk is full.
 */
export async function write(
  stream: Writable,
  text: string | Uint8Array,
  charged: Charged = 'no',
): Promise<void> {
  await tryWrite(stream, text, charged);
}

/**
 * Writes paid media, and resolves only if the system has accepted every byte.
 * @throws MgwError: exit 9 if the reader has closed the stream, 10 if the stream cannot be written.
 */
export async function writeMedia(stream: Writable, bytes: Uint8Array): Promise<void> {
  if (await tryWrite(stream, bytes, 'yes')) return;
  const message = 'Standard output was closed before the result was completely written.';
  throw new MgwError('result_unavailable', message, { charged: 'yes', retry: 'resume' });
}

// Writes data. Resolves to false if the reader has closed the stream.
function tryWrite(stream: Writable, data: string | Uint8Array, charged: Charged): Promise<boolean> {
  return new Promise((resolve, reject) => {
    stream.write(data, (error) => {
      if (error && systemCode(error) !== 'EPIPE') reject(localError(error, 'standard output', charged));
      else resolve(!error);
    });
  });
}

/** Whether mgw runs in a GitHub workflow, whose runner interprets commands on stdout and stderr. */
export function isWorkflow(env: NodeJS.ProcessEnv): boolean {
  return env['GITHUB_ACTIONS'] === 'true';
}

/**
 * Returns a filter for text that arrives in pieces. The filter breaks up everything that the runner would interpret as
 * a command: `::add-mask::` at the beginning of a line, even after white space, and `##[` anywhere. The text may have
 * one character per byte, in any encoding.
 */
export function commandFilter(): (piece: string) => string {
  // The part of the last line that may be the beginning of a command.
  let lineStart = '';
  return (piece) => {
    // The runner also skips non-ASCII white space, so every character except visible ASCII is treated as blank.
    const safe = `${lineStart}${piece}`
      .replace(/^([^!-~\n\r\u2028\u2029]*):(?=:)/gm, '$1: ')
      .replaceAll('##[', '## [');
    const line = safe.slice(Math.max(safe.lastIndexOf('\n'), safe.lastIndexOf('\r')) + 1);
    const output = safe.slice(lineStart.length);
    const isBlank = /^[^!-~]*:?$/.test(line);
    lineStart = isBlank ? line.replace(/[^:]/g, '') : `x${line.slice(-2)}`;
    return output;
  };
}

/** Returns streams for a workflow's runner that remove the runner's commands from text. Bytes are written unchanged. */
export function withoutCommandsIn(io: Io): Io {
  return {
    ...io,
    stdin: io.stdin,
    env: io.env,
    stdout: withFilter(io.stdout),
    stderr: withFilter(io.stderr),
  };
}

function withFilter<Stream extends Writable>(stream: Stream): Stream {
  const filter = commandFilter();
  const write = (text: unknown, ...remaining: []): boolean =>
    stream.write(typeof text === 'string' ? filter(text) : text, ...remaining);
  return new Proxy(stream, {
    get: (target, name) => {
      if (name === 'write') return write;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/**
 * Installs signal handlers. A first SIGINT, SIGTERM or SIGHUP requests a stop (`soft`), and a second signal aborts
 * outstanding requests (`hard`). Between the two signals, mgw waits for the response to a paid request (design 5).
 */
export function interruptions(): Signals {
  const soft = new AbortController();
  const hard = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    if (soft.signal.aborted) hard.abort(signal);
    else soft.abort(signal);
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onSignal);
  return { soft: soft.signal, hard: hard.signal };
}

/** The maximum size of an input that is read as a whole, in bytes: 64 MiB. */
export const maxInputBytes = 64 * 1024 * 1024;

/**
 * Yields standard input as it arrives.
 * @throws MgwError, exit 6, if standard input has not ended at the deadline. Nothing can be read from it afterwards.
 */
export async function* stdinChunks({ stdin, stderr }: Io, deadline?: Deadline): AsyncGenerator<Buffer> {
  // Report that mgw is waiting for input, so that it does not seem to hang.
  if (stdin.isTTY === true) await write(stderr, 'Reading from the terminal. Press Ctrl-D to finish.\n');
  const abandon = (): void => void stdin.destroy(lateError());
  const timer = deadline && setTimeout(abandon, Math.min(deadline.remainingMs(), maxTimerMs));
  try {
    for await (const chunk of stdin) yield Buffer.from(chunk as Uint8Array);
  } finally {
    clearTimeout(timer);
  }
}

function lateError(): MgwError {
  return new MgwError('pending', 'Standard input did not end within --timeout.', {
    exit: 'unavailable',
    retry: 'safe',
  });
}

/**
 * Reads all of standard input as text.
 * @throws MgwError('usage') if it is not valid UTF-8, or larger than 64 MiB; otherwise as {@link stdinChunks} does.
 */
export async function readStdin(io: Io, deadline?: Deadline): Promise<string> {
  return decodeUtf8(await readStdinBytes(io, '', deadline), 'Standard input');
}

/**
 * Reads all of standard input.
 * @throws MgwError('usage') whose message ends with `advice` if it is over 64 MiB; otherwise as {@link stdinChunks} does.
 */
export async function readStdinBytes(io: Io, advice = '', deadline?: Deadline): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const bytes of stdinChunks(io, deadline)) {
    chunks.push(bytes);
    size += bytes.length;
    if (size > maxInputBytes) throw usageError(`Standard input is larger than 64 MiB.${advice}`);
  }
  return Buffer.concat(chunks);
}

/** Decodes UTF-8. @throws MgwError('usage') naming `what` if the bytes are not valid UTF-8. */
export function decodeUtf8(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw usageError(`${what} is not valid UTF-8.`);
  }
}
