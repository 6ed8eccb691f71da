import * as z from 'zod';
import type { McpServer, StandardSchemaWithJSON } from '@modelcontextprotocol/server';
import { type MgwError, usageError, messageOf, systemCode } from '../errors.ts';
import type { FlowDeps } from '../flows/settings.ts';
import type { Session } from '../flows/session.ts';
import type { Job } from '../job.ts';
import type { Authority } from './authority.ts';
import type { Call, Calls } from './calls.ts';
import type { Confirmation } from './confirmation.ts';
import { answerSchema, type ToolOutcome, pendingAnswer } from './result.ts';
import { realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { printableLine } from '../printable.ts';
import { isObjectUrl } from '../store-url.ts';

/** The dependencies of a server's tools. */
export interface Tools {
  session: Session;
  calls: Calls;
  root: Root;
  authority: Authority;
  checkBatch: CheckBatch;
  readFile: ReadFile;
  /** The runs of batches by their names, including those that have ended. */
  runs: Map<string, StartedRun>;
  /** Absent if no payment needs a person. */
  confirmation: Confirmation | undefined;
}

/** A tool: its description for clients, and its action. */
export interface Tool<Fields extends z.ZodRawShape = z.ZodRawShape> {
  name: string;
  title: string;
  description: string;
  /** `look` changes nothing, `save` writes files, `pay` costs money. */
  effect: 'look' | 'save' | 'pay';
  /** Whether the tool works without the network. */
  isLocal?: true;
  /** Called when first needed: a server answers `initialize` sooner without the schemas of its tools. */
  fields: () => Fields;
  run(given: z.infer<z.ZodObject<Fields>>, call: Call, tools: Tools): Promise<ToolOutcome>;
}

/** The part that every description of a paying tool contains. */
export const sameKey =
  'The same key is always the same job: call again with the same key and arguments after a timeout or an error, and nothing is paid twice.';

/** The argument that every tool that pays requires. */
export const keyField = (): z.ZodString =>
  z
    .string()
    .describe('permanently names this submission, such as intro-1. Never choose another key to try again.');

/** Returns the tool unchanged, and infers the types of its arguments. */
export function tool<Fields extends z.ZodRawShape>(given: Tool<Fields>): Tool {
  return given;
}

/** Adds a tool to a server. A call that takes too long is answered with the same call as the next step. */
export function addTool(server: McpServer, tools: Tools, each: Tool): void {
  const { name, title, description, effect, isLocal = false, fields } = each;
  let made: z.ZodObject | undefined;
  const schema = (): z.ZodObject => (made ??= z.strictObject(fields()));
  // Arguments are checked below: a response of the SDK would not say that nothing was charged.
  const asGiven: StandardSchemaWithJSON<Record<string, unknown>> = {
    '~standard': {
      version: 1,
      vendor: 'zod',
      get jsonSchema() {
        return schema()['~standard'].jsonSchema;
      },
      validate: (value) => ({ value: value as Record<string, unknown> }),
    },
  };
  server.registerTool(
    name,
    {
      title,
      description,
      inputSchema: asGiven,
      outputSchema: answerSchema,
      annotations: {
        readOnlyHint: effect === 'look',
        ...(effect !== 'look' && { destructiveHint: false, idempotentHint: true }),
        openWorldHint: !isLocal,
      },
    },
    (given, context) => {
      const late = pendingAnswer({ tool: name, arguments: given }, effect === 'pay' ? 'maybe' : 'no');
      return tools.calls.run(context, late, async (call) =>
        each.run(parsed(schema(), given, name), call, tools),
      );
    },
  );
}

function parsed<Schema extends z.ZodObject>(schema: Schema, given: unknown, tool: string): z.infer<Schema> {
  const { success, data, error } = schema.safeParse(given);
  if (success) return data;
  const faults = error.issues.map(({ path, message }) => [...path.map(String), message].join(': '));
  throw usageError(`${tool}: ${faults.join('; ')}. Nothing was sent.`);
}

/** The arguments that identify a batch. */
export interface BatchRequest {
  /** The path of its manifest. */
  manifest: string;
  name?: string | undefined;
  output?: string | undefined;
}

/** A batch whose rows were all checked; nothing was sent. */
export interface CheckedBatch {
  name: string;
  /** The absolute path of its manifest. */
  manifest: string;
  /** The other words of the command line that runs it, with absolute paths. */
  typed: readonly string[];
  /** The part for the answer: counts, cost, problems, rows. */
  view: Record<string, unknown>;
  /** The maximum cost of the open rows, an exact decimal; undefined if a price is unknown. */
  atMost: string | undefined;
  /** Whether any row is open. */
  isOpen: boolean;
  /** The error about invalid rows, which keep the batch from running. */
  refusal: MgwError | undefined;
  /** The error of `strict` about videos of done rows that differ from their requests; undefined if none differs. */
  differing: MgwError | undefined;
  /** The hash of all its requests. */
  request: string;
  /** The hash of each row's request. */
  rows: ReadonlySet<string>;
  /** The names of other batches that paid, or may have paid, for the requests of new rows. */
  paidBy: ReadonlySet<string>;
  /** The jobs in doubt outside of the batch that block its rows. */
  doubts: readonly RowInDoubt[];
  /**
   * Carries out the open rows, except rows whose request has changed since the check.
   * @param onError called for each row that ended with an error
   * @returns the error that stopped the run early, or undefined
   */
  run(deps: FlowDeps, onError: (id: string, error: MgwError) => void): Promise<MgwError | undefined>;
}

/** A row that was not submitted, and a job with the same request whose outcome is unknown, here or to the agent. */
export interface RowInDoubt {
  /** The id of the row. */
  id: string;
  job: Job;
  about: 'unknown' | 'sending' | 'untold';
}

/** Returns the bytes of a plain file. @throws MgwError('usage') naming the argument if it cannot be read. */
export type ReadFile = (path: string, what: string) => Promise<Uint8Array>;

/** Opens batches with the code of `mgw batch`. Files are read and written only below the root. */
export type CheckBatch = (
  asked: BatchRequest,
  tools: Pick<Tools, 'root' | 'runs'>,
  kind: 'plan' | 'status',
) => Promise<CheckedBatch>;

/** The run of a batch that this server has started. */
export interface StartedRun {
  isRunning: boolean;
  /** The hash of each row's request. */
  rows: ReadonlySet<string>;
  /** The errors of rows, by their ids. */
  errors: Map<string, MgwError>;
  error?: MgwError;
}

/** The folder that contains all files an agent may read or write (design 16). */
export class Root {
  /** The real path of the folder. */
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  /** Opens the folder. @throws MgwError('usage') if there is none. */
  static async open(folder: string): Promise<Root> {
    try {
      return new Root(await realpath(folder));
    } catch (error) {
      throw usageError(`--root ${printableLine(folder)}: ${messageOf(error)}`);
    }
  }

  /**
   * Returns the absolute path of a file that is read or written.
   * @param given relative to the root, or absolute
   * @param what the name of the argument, for the error
   * @throws MgwError('usage') if its real path, or that of the folder it would be created in, is outside of the root or
   * cannot be resolved.
   */
  async file(given: string, what: string): Promise<string> {
    const shown = `${what}: ${printableLine(given, 200)}`;
    if (isObjectUrl(given)) throw usageError(`${shown} is not a path: give one below ${this.path}.`);
    const path = resolve(this.path, given);
    if (!given.includes('\0') && this.#holds(path)) {
      const real = await realPathOf(path).catch((error: unknown) => {
        throw usageError(`${shown}: ${messageOf(error)}`);
      });
      if (this.#holds(real)) return path;
    }
    throw usageError(`${shown} is outside of ${this.path}, the folder this server may use.`);
  }

  #holds(path: string): boolean {
    const way = relative(this.path, path);
    return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
  }
}

// Returns the real path that a missing file would have.
async function realPathOf(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    if (systemCode(error) !== 'ENOENT' || parent === path) throw error;
    return join(await realPathOf(parent), relative(parent, path));
  }
}
