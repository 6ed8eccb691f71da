import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../src/clock.ts';
import { createClient } from '../../src/http/client.ts';
import type { JobDeps } from '../../src/jobs/order.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { currentOwner } from '../../src/ledger/owner.ts';
import { secretRedactor } from '../../src/redact.ts';
import { speechBody, type Frames } from './frames.ts';
import { onEnd } from '../support/clean-ups.ts';
import { leaseOf } from '../support/lease.ts';

export const key = 'sk-canary-8a7d6c5b4e3f2a1b';

/** A request as the server received it. */
export interface Seen {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** The server's response to one request: a body of frames, or a function that controls the connection. */
export type Answer = Frames | ((response: ServerResponse, seen: Seen) => void | Promise<void>);

export interface SpeechServer {
  url: string;
  requests: Seen[];
  /** The responses to the next requests. The last response is repeated. */
  answers: Answer[];
}

/** Starts a server on loopback with scripted responses. */
export async function speechServer(...answers: Answer[]): Promise<SpeechServer> {
  const state: SpeechServer = { url: '', requests: [], answers };
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      const seen = { path: request.url ?? '', headers: request.headers, body };
      state.requests.push(seen);
      const answer = state.answers.length > 1 ? state.answers.shift() : state.answers[0];
      if (typeof answer === 'function') void answer(response, seen);
      else response.writeHead(200, { 'X-Tt-Logid': 'log1' }).end(speechBody(answer ?? []));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  onEnd(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(() => resolve()));
  });
  return state;
}

/** Creates a folder that is removed after the test, and returns its path. */
export function freshFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-speech-'));
  onEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Returns the names of the files in a folder, except the state folder. */
export function names(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name !== 'state')
    .sort();
}

/** Returns a clock whose sleeps end immediately and advance its time. `slept` contains their durations, in ms. */
export function quickClock(): Clock & { slept: number[] } {
  let passed = 0;
  const slept: number[] = [];
  return {
    slept,
    now: () => Date.now() + passed,
    monotonic: () => performance.now() + passed,
    sleep: (ms, signal) => {
      signal?.throwIfAborted();
      slept.push(ms);
      passed += ms;
      return new Promise((resolve) => setImmediate(resolve));
    },
  };
}

export interface TestDeps extends JobDeps {
  notes: string[];
  soft: AbortController;
  hard: AbortController;
}

/** Returns the dependencies for speech from the server at `url`, with a ledger in `folder/state`. */
export async function depsFor(url: string, folder: string, more: Partial<JobDeps> = {}): Promise<TestDeps> {
  const client = createClient({ baseUrl: new URL(url), key, userAgent: 'test' });
  onEnd(() => client.close());
  const [soft, hard, notes] = [new AbortController(), new AbortController(), [] as string[]];
  return {
    ledger: await openFileLedger(join(folder, 'state'), () => Date.now()),
    client,
    clock: quickClock(),
    lease: leaseOf(currentOwner()),
    userAgent: 'test',
    gateway: 'test',
    account: 'test',
    redact: secretRedactor([key]),
    note: (text) => void notes.push(text),
    signals: { soft: soft.signal, hard: hard.signal },
    retries: 5,
    priceOf: () => Promise.resolve({ subject: 'a test' }),
    allowances: () => Promise.resolve([]),
    ...more,
    notes,
    soft,
    hard,
  };
}
