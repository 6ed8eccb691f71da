import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Sandbox, type SandboxOptions, startSandbox } from '../../src/sandbox/server.ts';
import { onEnd } from '../support/clean-ups.ts';

/** A sandbox with its own state folder and a manual clock. */
export interface TestSandbox extends Sandbox {
  stateDir: string;
  clock: { now: number };
  /** Makes a JSON call with the default key. `headers` are added; a header set to '' is removed. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
  /** Calls a Protocol B action, such as `CreateAigcVideoTask`. */
  act(action: string, body: unknown, headers?: CallOptions['headers']): Promise<Answer>;
}

export interface CallOptions {
  body?: unknown;
  headers?: Record<string, string>;
}

export interface Answer {
  status: number;
  headers: Headers;
  bytes: Buffer;
  /** The body parsed as JSON, or undefined if the body is not JSON. */
  body: unknown;
  /** Returns the body's member at the given path, such as `data.status`, or undefined. */
  at(path: string): unknown;
}

/** Returns a new state folder that is removed after the test. */
export function freshState(): string {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-sandbox-'));
  onEnd(() => rmSync(folder, { recursive: true, force: true }));
  return join(folder, 'state');
}

/** Starts a sandbox that is closed after the test. Generations take 1000 ms by the sandbox's clock. */
export async function sandbox(options: Partial<SandboxOptions> = {}): Promise<TestSandbox> {
  const clock = { now: 1_795_000_000_000 };
  const stateDir = options.stateDir ?? freshState();
  const started = await startSandbox({ paceMs: 1000, now: () => clock.now, ...options, stateDir });
  onEnd(() => started.close());
  const own: TestSandbox['call'] = (method, path, given) => call(started, method, path, given);
  const act: TestSandbox['act'] = (action, body, headers = {}) =>
    own('POST', '/', {
      body,
      headers: { 'X-TC-Action': action, 'X-TC-Version': '2018-07-17', ...headers },
    });
  return { ...started, stateDir, clock, call: own, act };
}

async function call(
  target: Sandbox,
  method: string,
  path: string,
  options: CallOptions = {},
): Promise<Answer> {
  const wanted = {
    Authorization: `Bearer ${target.key}`,
    'Content-Type': 'application/json',
    ...options.headers,
  };
  const headers = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== ''));
  const body = options.body === undefined ? undefined : textOf(options.body);
  const response = await fetch(path.startsWith('http') ? path : target.url + path, { method, headers, body });
  const bytes = Buffer.from(await response.arrayBuffer());
  const json = response.headers.get('content-type')?.startsWith('application/json') && bytes.length > 0;
  const answer: unknown = json ? JSON.parse(bytes.toString()) : undefined;
  return {
    status: response.status,
    headers: response.headers,
    bytes,
    body: answer,
    at: (to) => memberAt(answer, to),
  };
}

function textOf(body: unknown): string {
  return typeof body === 'string' ? body : JSON.stringify(body);
}

function memberAt(value: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], value);
}
