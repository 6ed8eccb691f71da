import { Client as ModernClient } from '@modelcontextprotocol/client';
import { StdioClientTransport as ModernTransport } from '@modelcontextprotocol/client/stdio';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { resolve } from 'node:path';
import { onEnd } from '../support/clean-ups.ts';
import type { User } from '../support/cli.ts';

const bin = resolve('bin/mgw.js');

/** A tool's answer. */
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

/** A client connected to a server of a user. */
export interface Agent {
  call(tool: string, given?: Record<string, unknown>, options?: { signal?: AbortSignal }): Promise<Answered>;
  tools(): Promise<string[]>;
  /** The process of the server. */
  pid: number;
  /** The server's stderr. */
  stderr(): string;
  close(): Promise<void>;
  /** Ends the connection like a killed client, without a message. */
  die(): void;
}

/** How a client responds when its person is asked. */
export type Person = (message: string) => { action: 'accept' | 'decline'; content?: Record<string, boolean> };

export const clients = ['v1', 'v2', 'v2 of 2026-07-28'] as const;

/** Connects an official client of the given version to `mgw ARGS`. A person can be asked if one is given. */
export async function connect(
  kind: (typeof clients)[number],
  user: User,
  args: readonly string[],
  person?: Person,
): Promise<Agent> {
  const env = Object.fromEntries(
    Object.entries(user.env).filter(([, value]) => value !== undefined),
  ) as Record<string, string>;
  const server = {
    command: process.execPath,
    args: [bin, ...args],
    cwd: user.cwd,
    env,
    stderr: 'pipe' as const,
  };
  const agent = await (kind === 'v1' ? connectV1(server, person) : connectV2(server, kind !== 'v2', person));
  onEnd(() => agent.close());
  return agent;
}

type Server = ConstructorParameters<typeof StdioClientTransport>[0];

async function connectV1(server: Server, person: Person | undefined): Promise<Agent> {
  const transport = new StdioClientTransport(server);
  const client = new Client(
    { name: 'test', version: '1' },
    { capabilities: person === undefined ? {} : { elicitation: {} } },
  );
  if (person !== undefined)
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({ ...person(params.message) }));
  const stderr = textOf(transport.stderr);
  await client.connect(transport);
  return {
    call: async (name, given = {}, options) =>
      answered(await client.callTool({ name, arguments: given }, undefined, options)),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    pid: transport.pid ?? 0,
    stderr,
    close: () => client.close(),
    die: () => cutOff(transport),
  };
}

async function connectV2(server: Server, isModern: boolean, person: Person | undefined): Promise<Agent> {
  const transport = new ModernTransport(server);
  const client = new ModernClient(
    { name: 'test', version: '1' },
    {
      capabilities: person === undefined ? {} : { elicitation: {} },
      ...(isModern && { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
    },
  );
  if (person !== undefined)
    client.setRequestHandler('elicitation/create', ({ params }) => ({ ...person(params.message) }));
  const stderr = textOf(transport.stderr);
  await client.connect(transport);
  return {
    call: async (name, given = {}, options) =>
      answered(await client.callTool({ name, arguments: given }, options)),
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    pid: transport.pid ?? 0,
    stderr,
    close: () => client.close(),
    die: () => cutOff(transport),
  };
}

function answered(result: Record<string, unknown>): Answered {
  if (result['structuredContent'] === undefined) throw new Error(JSON.stringify(result['content']));
  return result['structuredContent'] as Answered;
}

function textOf(stream: NodeJS.EventEmitter | null): () => string {
  let text = '';
  stream?.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return () => text;
}

// The pipes belong to the transport.
function cutOff(transport: object): void {
  const { stdin, stdout } = Reflect.get(transport, '_process') as ChildProcessWithoutNullStreams;
  stdin.destroy();
  stdout.destroy();
}
