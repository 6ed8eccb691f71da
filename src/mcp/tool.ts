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
import { isUrl, tildeProblem } from '../store-url.ts';

/** Dependencies of a server's tools. */
export interface Tools {
  session: Session;
  calls: Calls;
  root: Root;
  authority: Authority;
  checkBatch: CheckBatch;
  readFile: ReadFile;
  /** The batch runs by batch name, including those that have ended. */
  runs: Map<string, StartedRun>;
  /** Asks for confirmation of payments; undefined if payments do not require it. */
  confirmation: Confirmation | undefined;
}

/** A tool: its description for clients and its implementation. */
export interface Tool<Fields extends z.ZodRawShape = z.ZodRawShape> {
  name: string;
  title: string;
  description: string;
  /** `look` is read-only, `save` writes files, and `pay` costs money. */
  effect: 'look' | 'save' | 'pay';
  /** Whether the tool works without the network. */
  isLocal?: true;
  /** Returns the tool's arguments. Called on first use, so that a server answers `initialize` sooner. */
  fields: () => Fields;
  run(args: z.infer<z.ZodObject<Fields>>, call: Call, tools: Tools): Promise<ToolOutcome>;
}

/** The sentence that the descriptions of all paying tools contain. */
export const sameKey =
  'The same key is always the same job: after a timeout or an error, call the tool again with the same key and arguments, and nothing is paid for twice.';

/** The argument that every paying tool requires. */
export const keyField = (): z.ZodString =>
  z
    .string()
    .describe('permanent name of this submission, such as intro-1. Never choose another key to retry.');

/** Returns the tool unchanged. Lets the compiler infer the types of its arguments. */
export function tool<Fields extends z.ZodRawShape>(definition: Tool<Fields>): Tool {
  return definition;
}

/** Adds a tool to a server. If a call takes too long, its answer suggests repeating the call. */
export function addTool(server: McpServer, tools: Tools, each: Tool): void {
  const { name, title, description, effect, isLocal = false, fields } = each;
  let cachedSchema: z.ZodObject | undefined;
  const schema = (): z.ZodObject => (cachedSchema ??= z.strictObject(fields()));
  // Arguments are checked below, because an SDK error would not report that nothing was charged.
  const inputSchema: StandardSchemaWithJSON<Record<string, unknown>> = {
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
      inputSchema,
      outputSchema: answerSchema,
      annotations: {
        readOnlyHint: effect === 'look',
        ...(effect !== 'look' && { destructiveHint: false, idempotentHint: true }),
        openWorldHint: !isLocal,
      },
    },
    (args, context) => {
      const late = pendingAnswer({ tool: name, arguments: args }, effect === 'pay' ? 'maybe' : 'no');
      return tools.calls.run(context, late, async (call) =>
        each.run(parseArguments(schema(), args, name), call, tools),
      );
    },
  );
}

function parseArguments(schema: z.ZodObject, args: unknown, tool: string): Record<string, unknown> {
  const { success, data, error } = schema.safeParse(args);
  if (success) return data;
  const problems = error.issues.map(({ path, message }) => [...path.map(String), message].join(': '));
  throw usageError(`${tool}: ${problems.join('; ')}. Nothing was sent.`);
}

/** Arguments that identify a batch. */
export interface BatchRequest {
  /** The path of the batch's manifest. */
  manifest: string;
  name?: string | undefined;
  output?: string | undefined;
}

/** A batch whose rows have all been checked. Nothing has been sent. */
export interface CheckedBatch {
  name: string;
  /** The absolute path of the batch's manifest. */
  manifest: string;
  /** The flags of the command line that runs the batch, with absolute paths. */
  commandWords: readonly string[];
  /** Members for the answer: counts, cost, problems and rows. */
  view: Record<string, unknown>;
  /** The maximum cost of the open rows, as an exact decimal; undefined if a price is unknown. */
  atMost: string | undefined;
  /** Whether any row is open. */
  isOpen: boolean;
  /** Whether any row is new and has no error from this server's last run. */
  hasUntriedRows: boolean;
  /** Advice about the rows, without duplicates. */
  advice: readonly string[];
  /** The error to report if invalid rows prevent a run. */
  refusal: MgwError | undefined;
  /** The error for `strict` if a done row's video differs from its request; undefined if none does. */
  differing: MgwError | undefined;
  /** A hash of all requests. */
  request: string;
  /** A hash of each row's request. */
  rows: ReadonlySet<string>;
  /** The names of other batches that paid, or may have paid, for the requests of new rows. */
  paidBy: ReadonlySet<string>;
  /** Jobs outside the batch that block its rows because their outcome is unknown. */
  doubts: readonly RowInDoubt[];
  /**
   * Runs the open rows, except rows whose request has changed since the check.
   * @param onError called for each row that fails
   * @returns the error that stopped the run early, or undefined
   */
  run(deps: FlowDeps, onError: (id: string, error: MgwError) => void): Promise<MgwError | undefined>;
}

/**
 * A row that was not submitted, and the job that blocks it: a job with the same request, whose outcome is unknown to
 * mgw or to the agent.
 */
export interface RowInDoubt {
  /** The row's id. */
  id: string;
  job: Job;
  about: 'unknown' | 'sending' | 'unreported';
}

/**
 * Returns the bytes of a regular file.
 * @throws MgwError('usage') that names the argument if the file cannot be read.
 */
export type ReadFile = (path: string, what: string) => Promise<Uint8Array>;

/** Opens and checks batches with the same code as `mgw batch`. Reads and writes files only below the root folder. */
export type CheckBatch = (
  request: BatchRequest,
  tools: Pick<Tools, 'root' | 'runs' | 'session'>,
  kind: 'plan' | 'status',
) => Promise<CheckedBatch>;

/** A batch run that this server has started. */
export interface StartedRun {
  isRunning: boolean;
  /** A hash of each row's request. */
  rows: ReadonlySet<string>;
  /** The rows' errors, by row id. */
  errors: Map<string, MgwError>;
  error?: MgwError;
}

/** The root folder, which contains all files that an agent may read or write (design 16). */
export class Root {
  /** @param path the folder's real path */
  private constructor(readonly path: string) {}

  /** Opens the root folder. @throws MgwError('usage') if it does not exist. */
  static async open(folder: string): Promise<Root> {
    try {
      return new Root(await realpath(folder));
    } catch (error) {
      if (systemCode(error) === 'ENOENT')
        throw usageError(`--root: no such folder: ${printableLine(folder)}.`, ['mkdir', '-p', folder]);
      throw usageError(`--root ${printableLine(folder)}: ${messageOf(error)}`);
    }
  }

  /**
   * Returns the absolute path of a file to read or write.
   * @param pathArgument relative to the root folder, or absolute
   * @param argument the argument's name, for the error
   * @throws MgwError('usage') if the real path of the file, or of the folder in which it would be created, is outside
   * the root folder or cannot be resolved.
   */
  async file(pathArgument: string, argument: string): Promise<string> {
    const subject = `${argument}: ${printableLine(pathArgument, 200)}`;
    if (isUrl(pathArgument)) throw usageError(`${subject} is not a path. Use a path below ${this.path}.`);
    const problem = tildeProblem(pathArgument);
    if (problem !== undefined) throw usageError(`${subject} must be ${problem}.`);
    const path = resolve(this.path, pathArgument);
    if (!pathArgument.includes('\0') && this.#contains(path)) {
      const real = await realPathOf(path).catch((error: unknown) => {
        throw usageError(`${subject}: ${messageOf(error)}`);
      });
      if (this.#contains(real)) return path;
    }
    throw usageError(`${subject} is outside ${this.path}, the only folder that this server can use.`);
  }

  #contains(path: string): boolean {
    const relativePath = relative(this.path, path);
    return (
      relativePath === '' ||
      (relativePath !== '..' && !relativePath.startsWith(`..${sep}`) && !isAbsolute(relativePath))
    );
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
