import { Client as ModernClient } from '@modelcontextprotocol/client';
import { StdioClientTransport as ModernTransport } from '@modelcontextprotocol/client/stdio';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import { systemClock } from '../../src/clock.ts';
import { onEnd } from '../support/clean-ups.ts';
import type { User } from '../support/cli.ts';

const bin = resolve('bin/mgw.js');

/** A tool's result. */
export interface Answered {
  ok: boolean;
  charged: string;
  retry: string;
  next: { tool: string; arguments: Record<string, unknown> } | null;
  command?: string[];
  resumed?: boolean;
  pending?: boolean;
  error?: { code: string; message: string; exit_code: number };
  job?: { id: string; state: string; key?: string; files: { path: string }[] };
  files?: { path: string; bytes: number }[];
  [member: string]: unknown;
}

/** A client connected to a user's server. */
export interface Agent {
  call(tool: string, given?: Record<string, unknown>, options?: { signal?: AbortSignal }): Promise<Answered>;
  tools(): Promise<string[]>;
  /** Returns the JSON content of a resource. */
  read(uri: string): Promise<Answered>;
  /** Returns the server's stderr. */
  stderr(): string;
  close(): Promise<void>;
}

/** A client whose server is a separate process. */
export interface AgentOfProcess extends Agent {
  /** Kills the server, and waits until its process no longer exists. */
  kill(): Promise<void>;
  /** Ends the connection without a message, like a killed client. */
  die(): void;
}

/** Returns the user's response when the client prompts its user. */
export type Person = (message: string) => { action: 'accept' | 'decline'; content?: Record<string, boolean> };

export const clients = ['v1', 'v2', 'v2 of 2026-07-28'] as const;

type Kind = (typeof clients)[number];

/**
 * Connects an official client to `mgw ARGS` in this process. The client can prompt its user if `person` is set, in the
 * modes of `elicitation`.
 */
export async function connect(
  kind: Kind,
  user: User,
  args: readonly string[],
  person?: Person,
  elicitation: object = {},
): Promise<Agent> {
  const server = new ServerHere(user, args);
  return { ...(await agentOf(kind, server, person, elicitation)), stderr: textOf(server.stderr) };
}

/** Connects an official client to `mgw ARGS` in a separate process, with the client's own transport. */
export async function connectProcess(
  kind: Kind,
  user: User,
  args: readonly string[],
): Promise<AgentOfProcess> {
  const env = Object.fromEntries(
    Object.entries(user.env).filter(([, value]) => value !== undefined),
  ) as Record<string, string>;
  const command = {
    command: process.execPath,
    args: [bin, ...args],
    cwd: user.cwd,
    env,
    stderr: 'pipe' as const,
  };
  const transport = kind === 'v1' ? new StdioClientTransport(command) : new ModernTransport(command);
  const stderr = textOf(transport.stderr);
  const agent = await agentOf(kind, transport, undefined);
  const kill = async (): Promise<void> => {
    const { pid } = transport;
    if (pid === null) throw new Error('the server has no process');
    process.kill(pid, 'SIGKILL');
    while (exists(pid)) await new Promise((resolve) => setTimeout(resolve, 5));
  };
  return { ...agent, stderr, kill, die: () => cutOff(transport) };
}

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** A server in this process, and the transport that connects to the server. */
class ServerHere implements Transport {
  onmessage?: Transport['onmessage'];
  onclose?: () => void;
  readonly stderr = new PassThrough();
  readonly #stdin = new PassThrough();
  readonly #stdout = new PassThrough();
  readonly #user: User;
  readonly #args: readonly string[];
  #ended: Promise<unknown> | undefined;

  constructor(user: User, args: readonly string[]) {
    this.#user = user;
    this.#args = args;
  }

  start(): Promise<void> {
    const { env, cwd } = this.#user;
    createInterface({ input: this.#stdout }).on('line', (line) =>
      this.onmessage?.(JSON.parse(line) as never),
    );
    const streams = { stdin: this.#stdin, stdout: this.#stdout, stderr: this.stderr };
    this.#ended = main([...this.#args, '--root', cwd], { ...streams, env, clock: systemClock }).then(() =>
      this.onclose?.(),
    );
    return Promise.resolve();
  }

  send(message: object): Promise<void> {
    this.#stdin.write(`${JSON.stringify(message)}\n`);
    return Promise.resolve();
  }

  async close(): Promise<void> {
    this.#stdin.end();
    await this.#ended;
  }
}

type Common = Pick<Agent, 'call' | 'tools' | 'read' | 'close'>;

async function agentOf(
  kind: Kind,
  transport: Transport,
  person: Person | undefined,
  elicitation: object = {},
): Promise<Common> {
  const capabilities = person === undefined ? {} : { elicitation };
  const agent = await (kind === 'v1'
    ? connectV1(transport, person, capabilities)
    : connectV2(transport, kind !== 'v2', person, capabilities));
  onEnd(() => agent.close());
  return agent;
}

async function connectV1(
  transport: Transport,
  person: Person | undefined,
  capabilities: object,
): Promise<Common> {
  const client = new Client({ name: 'test', version: '1' }, { capabilities });
  if (person !== undefined)
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({ ...person(params.message) }));
  await client.connect(transport);
  return {
    call: async (name, given = {}, options) =>
      answered(await client.callTool({ name, arguments: given }, undefined, options)),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    read: async (uri) => contentOf(await client.readResource({ uri })),
    close: () => client.close(),
  };
}

async function connectV2(
  transport: Transport,
  isModern: boolean,
  person: Person | undefined,
  capabilities: object,
): Promise<Common> {
  const client = new ModernClient(
    { name: 'test', version: '1' },
    {
      capabilities,
      ...(isModern && { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
    },
  );
  if (person !== undefined)
    client.setRequestHandler('elicitation/create', ({ params }) => ({ ...person(params.message) }));
  await client.connect(transport);
  return {
    call: async (name, given = {}, options) =>
      answered(await client.callTool({ name, arguments: given }, options)),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    read: async (uri) => contentOf(await client.readResource({ uri })),
    close: () => client.close(),
  };
}

function answered(result: Record<string, unknown>): Answered {
  if (result['structuredContent'] === undefined) throw new Error(JSON.stringify(result['content']));
  return result['structuredContent'] as Answered;
}

function contentOf({ contents }: { contents: object[] }): Answered {
  return JSON.parse(String(Reflect.get(contents[0] ?? {}, 'text'))) as Answered;
}

function textOf(stream: NodeJS.EventEmitter | null): () => string {
  let text = '';
  stream?.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return () => text;
}

// Destroys the transport's pipes.
function cutOff(transport: object): void {
  const { stdin, stdout } = Reflect.get(transport, '_process') as ChildProcessWithoutNullStreams;
  stdin.destroy();
  stdout.destroy();
}
