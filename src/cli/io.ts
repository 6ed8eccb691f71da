import { fstatSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import type { Clock } from '../clock.ts';
import { type Charged, MgwError, systemCode } from '../errors.ts';
import { localError } from '../files/local-error.ts';
import type { Signals } from '../payment/pay-once.ts';

/** The three streams of a process, its environment and its clock, so that a command can be run without one. */
export interface Io {
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable & { isTTY?: boolean; columns?: number; fd?: number };
  stderr: Writable & { isTTY?: boolean; columns?: number; fd?: number };
  env: NodeJS.ProcessEnv;
  /** Default: the system's clock. */
  clock?: Clock;
}

/** The columns of a stream that is a terminal; undefined for anything else, which takes lines of any length. */
export function columnsOf(stream: { isTTY?: boolean; columns?: number }): number | undefined {
  return stream.isTTY === true && (stream.columns ?? 0) > 0 ? stream.columns : undefined;
}

/** Whether stdout and stderr are one terminal, pipe or file: what is on the one need not be said on the other. */
export function isOneOutput({ stdout, stderr }: Pick<Io, 'stdout' | 'stderr'>): boolean {
  if (stdout.fd === undefined || stderr.fd === undefined) return false;
  const [one, other] = [fstatSync(stdout.fd), fstatSync(stderr.fd)];
  // Windows has no number for a pipe.
  const isKnown = one.ino !== 0 || stdout.isTTY === true;
  return isKnown && one.ino === other.ino && one.dev === other.dev && stdout.isTTY === stderr.isTTY;
}

/**
 * Writes and resolves when the text has left for the system. A closed pipe is the reader's wish (`mgw … | head`) and
 * no error.
 * @throws MgwError('local_io') if the stream takes nothing (a full disk); `charged` is what it says of the money.
 */
export function write(stream: Writable, text: string | Uint8Array, charged: Charged = 'no'): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => {
      if (error && systemCode(error) !== 'EPIPE') reject(localError(error, 'standard output', charged));
      else resolve();
    });
  });
}

/**
 * Writes media that were paid for: what was not taken to the last byte was not delivered.
 * @throws MgwError: exit 9 if the reader has closed the stream, 10 if it cannot be written.
 */
export function writeMedia(stream: Writable, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(bytes, (error) => {
      if (!error) resolve();
      else if (systemCode(error) !== 'EPIPE') reject(localError(error, 'standard output', 'yes'));
      else
        reject(
          new MgwError(
            'result_unavailable',
            'Standard output was closed before the whole result was written.',
            {
              charged: 'yes',
              retry: 'resume',
            },
          ),
        );
    });
  });
}

/** True in a GitHub workflow, whose runner reads commands from what is printed, on stderr as well. */
export function isWorkflow(env: NodeJS.ProcessEnv): boolean {
  return env['GITHUB_ACTIONS'] === 'true';
}

/** Text of others as the runner takes for no command: `::add-mask::` at the beginning of a line, `##[` anywhere. */
export function withoutCommands(text: string): string {
  return text.replace(/^(\s*):(?=:)/gm, '$1: ').replaceAll('##[', '## [');
}

/** The streams as a workflow's runner may read them: what mgw writes as text holds none of its commands. Bytes pass as they are. */
export function withoutCommandsIn(io: Io): Io {
  return { ...io, stdin: io.stdin, env: io.env, stdout: filtered(io.stdout), stderr: filtered(io.stderr) };
}

function filtered<Stream extends Writable>(stream: Stream): Stream {
  const write = (text: unknown, ...rest: []): boolean =>
    stream.write(typeof text === 'string' ? withoutCommands(text) : text, ...rest);
  return new Proxy(stream, {
    get: (target, name) => {
      if (name === 'write') return write;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/**
 * From here on a first SIGINT or SIGTERM asks to stop (`soft`), a second one gives up what is outstanding
 * (`hard`). An answer that has been paid for is awaited in between (design 5).
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
