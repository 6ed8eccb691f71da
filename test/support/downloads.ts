import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import { deadlineIn, systemClock } from '../../src/clock.ts';
import { bearer } from '../../src/exchange.ts';
import {
  download,
  type DownloadDeps,
  type DownloadOutcome,
  type DownloadSource,
} from '../../src/http/download.ts';
import {
  acquireOutputLock,
  type Claimant,
  type LockOptions,
  type OutputLock,
} from '../../src/files/output-lock.ts';
import type { Certificate } from './certificates.ts';
import { head, RawServer, serve, type Answer, type Served } from './raw-server.ts';
import { TestClock } from './test-clock.ts';

/** A download test's fixtures: a folder, a clock, and servers that are closed when the test ends. */
export interface Downloads {
  folder: string;
  target: string;
  /** The path of `target`'s `.part` file, unless a different file has that path. */
  readonly part: string;
  clock: TestClock;
  start: (answer: Answer, host?: string, certificate?: Certificate) => Promise<RawServer>;
  /** Downloads to `target`, without a key unless the source requires one. */
  fetch: (
    url: string,
    deps?: Partial<DownloadDeps & Pick<LockOptions, 'claimant'>>,
    source?: Partial<DownloadSource> & { identity?: string },
  ) => Promise<DownloadOutcome>;
  /** Locks `target`. */
  lock: (options?: Partial<LockOptions>, identity?: string) => Promise<OutputLock>;
}

/** Returns the gateway that downloads in tests belong to. */
export function gatewayAt(
  baseUrl = 'http://127.0.0.1:1',
  ...trustedOrigins: string[]
): DownloadDeps['gateway'] {
  return { baseUrl: new URL(baseUrl), key: 'sk-secret', auth: bearer, trustedOrigins, userAgent: 'mgw/test' };
}

/**
 * Returns a claimant with the given pid. It considers the pids in `alive` alive, cannot check those in `unseen`, and
 * considers all others dead.
 */
export function claimantOf(
  pid: number,
  alive: readonly number[] = [],
  unseen: readonly number[] = [],
): Claimant {
  return {
    owner: { pid, start: '1', host: 'here' },
    assertLease: () => undefined,
    lifeOf: (owner) => {
      if (unseen.includes(owner.pid)) return Promise.resolve('unknown');
      return Promise.resolve(alive.includes(owner.pid) ? 'alive' : 'dead');
    },
  };
}

/** Locks an output as soon as it is free. */
export function lockAs(claimant: Claimant, target: string, identity: string): Promise<OutputLock> {
  const deadline = deadlineIn(1e9, systemClock);
  return acquireOutputLock(target, identity, {
    claimant,
    clock: systemClock,
    deadline,
    lateError: () => new Error('late'),
    charged: 'yes',
  });
}

/** Prepares {@link Downloads} before each test in a file, and cleans up after each test. */
export function useDownloads(): Downloads {
  const ctx = {} as Downloads;
  let servers: RawServer[] = [];
  const locks: OutputLock[] = [];
  beforeEach(async () => {
    ctx.folder = await mkdtemp(join(tmpdir(), 'mgw-download-'));
    ctx.target = join(ctx.folder, 'film.mp4');
    ctx.clock = new TestClock();
    servers = [];
  });
  afterEach(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    // Release the locks of processes that died during the test.
    for (const lock of locks.splice(0)) lock.release();
    await rm(ctx.folder, { recursive: true });
  });
  ctx.start = async (answer, host, certificate) => {
    const server = await RawServer.start(answer, host, certificate);
    servers.push(server);
    return server;
  };
  Object.defineProperty(ctx, 'part', { get: () => `${ctx.target}.part` });
  const lockNow: Downloads['lock'] = (options = {}, identity = 'job 0') =>
    acquireOutputLock(ctx.target, identity, {
      claimant: claimantOf(process.pid),
      clock: ctx.clock,
      deadline: deadlineIn(1e9, ctx.clock),
      lateError: () => new Error('late'),
      charged: 'yes',
      ...options,
    });
  ctx.lock = async (...wanted) => {
    const lock = await lockNow(...wanted);
    locks.push(lock);
    return lock;
  };
  ctx.fetch = async (url, { claimant, ...deps } = {}, { identity, ...source } = {}) => {
    const output = await lockNow(claimant && { claimant }, identity);
    const options = {
      gateway: gatewayAt(),
      clock: ctx.clock,
      deadline: deadlineIn(1e9, ctx.clock),
      retries: 3,
    };
    try {
      return await download({ url, key: 'never', ...source }, output, { ...options, ...deps });
    } finally {
      output.release();
    }
  };
  return ctx;
}

/** Fails unless a download succeeded and the file, its size and its hash are those of `bytes`. */
export async function expectWhole(outcome: DownloadOutcome, bytes: Buffer): Promise<void> {
  if (outcome.kind !== 'done')
    throw new Error(`the download ended with ${outcome.kind}: ${outcome.failure.message}`);
  const { path, sha256 } = outcome.file;
  expect((await readFile(path)).equals(bytes)).toBe(true);
  expect(outcome.file.bytes).toBe(bytes.length);
  expect(sha256).toBe(createHash('sha256').update(bytes).digest('hex'));
}

/**
 * Returns a handler that sends the n-th response to the n-th request, and the last response to all further requests.
 */
export function inTurn(...answers: Answer[]): Answer {
  let at = 0;
  return (request, socket) => answers[Math.min(at++, answers.length - 1)]?.(request, socket);
}

/** Returns a handler that serves a file like a correct host. */
export function file(served: Served): Answer {
  return (request, socket) => void serve(request, socket, served);
}

/** Sends a chunked body, with or without its last chunk. */
export function sayChunked(
  socket: Socket,
  bytes: Buffer,
  isWhole: boolean,
  headers: Record<string, string> = {},
): void {
  socket.write(head('200 OK', { 'transfer-encoding': 'chunked', ...headers }));
  for (let at = 0; at < bytes.length; at += 7000) {
    const chunk = bytes.subarray(at, at + 7000);
    socket.write(`${chunk.length.toString(16)}\r\n`);
    socket.write(chunk);
    socket.write('\r\n');
  }
  socket.end(isWhole ? '0\r\n\r\n' : '');
}
