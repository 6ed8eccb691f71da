import type { CallToolResult, InputRequiredResult } from '@modelcontextprotocol/server';
import * as z from 'zod';
import type { Charged, MgwError, Retry } from '../errors.ts';
import type { Job } from '../job.ts';
import { jobView, type JobView } from '../jobs/view.ts';
import { escapeControls, printable } from '../printable.ts';
import { withoutSignatures } from '../redact.ts';

/** A tool to call, and its arguments. */
export interface NextCall {
  tool: string;
  arguments: Record<string, unknown>;
}

/** A tool's answer, as `structuredContent` and as text (design 16). */
export interface Answer {
  ok: boolean;
  /** Whether this call was charged. If an earlier call paid, `charged` is `no` and `resumed` is true. */
  charged: Charged;
  retry: Retry;
  next: NextCall | null;
  /** A command line for the user, if no tool can perform the next step. */
  command?: string[];
  /** True if an earlier call paid for the job. */
  resumed?: true;
  /** True if the call timed out. The work continues. */
  pending?: true;
  error?: { code: string; message: string; exit_code: number; request_id?: string };
  [member: string]: unknown;
}

/** A tool's result: its answer, or a question for the user. */
export type ToolOutcome = Answer | InputRequiredResult;

/** The schema of every answer. It accepts unknown members, so that an answer about money is never rejected. */
export const answerSchema = z.looseObject({
  ok: z.boolean(),
  charged: z.enum(['no', 'maybe', 'yes']).describe('whether this call was charged'),
  retry: z
    .enum(['safe', 'resume', 'never'])
    .describe('whether the same call can be repeated; with resume, it never pays twice'),
  next: z
    .nullable(z.looseObject({ tool: z.string(), arguments: z.record(z.string(), z.unknown()) }))
    .describe('the tool to call next'),
  command: z.optional(z.array(z.string()).describe('a command line for the user')),
  resumed: z.optional(z.boolean().describe('an earlier call with this key paid for the job')),
  pending: z.optional(z.boolean().describe('not finished yet; make the call in next')),
  error: z.optional(
    z.looseObject({
      code: z.string(),
      message: z.string(),
      exit_code: z.number(),
      request_id: z.optional(z.string()),
    }),
  ),
});

/**
 * Returns a tool's result. Removes control characters, secrets, and signatures in URLs. From `next` and `command`,
 * removes only secrets: any other change could make the call a different request, which would be paid for again.
 */
export function toolResult(answer: Answer, redact: (text: string) => string): CallToolResult {
  const clean = (text: string): string =>
    withoutQueries(printable(withoutSignatures(redact(text)), maxTextLength));
  const structuredContent = mapMembers(answer, (member, name) =>
    mapTexts(member, name === 'next' || name === 'command' ? redact : clean),
  );
  return {
    content: [{ type: 'text', text: escapeControls(JSON.stringify(structuredContent)) }],
    structuredContent,
    ...(!answer.ok && { isError: true }),
  };
}

/** Returns an error's answer. @param charged whether this call was charged */
export function errorAnswer(error: MgwError, charged: Charged): Answer {
  const { code, message, exitCode, requestId, retry, budget, job } = error;
  const { next, command } = nextOf(error.next);
  return {
    ok: false,
    charged,
    retry,
    next,
    ...(command && { command }),
    error: {
      code,
      message: agentText(message) + (suggestsSettings(error) ? restartText : ''),
      exit_code: exitCode,
      ...(requestId !== undefined && { request_id: requestId }),
    },
    ...(budget && { budget }),
    ...(job && { job: agentView(job) }),
  };
}

// A server reads the settings once, because its calls and batches in progress must not change their gateway or ledger.
const restartText = ' This server uses changed settings only after a restart.';

// Whether an error suggests changing a setting or the key.
function suggestsSettings({ message, next = [] }: MgwError): boolean {
  return /\bmgw (?:auth (?:login|status)|config (?:set|unset))\b/.test(`${message} ${next.join(' ')}`);
}

// Flags that only the user who starts the server can set.
const personFlags = [
  'budget',
  'budget-name',
  'confirm-over',
  'new-budget',
  'root',
  'sandbox',
  'timeout',
  'trust-origin',
];

/**
 * Adapts the text of an error or a note for an agent. A tool's arguments have the names of the flags, without dashes.
 */
export function agentText(text: string): string {
  return (
    text
      // Removes advice about flags that no tool has.
      .replace(/[;.] (?:To [^;.]*, use )?--(?:force|ignore-columns|no-check|skip-bad)\b[^;.]*\.?$/, '.')
      .replace(/(?:\. To allow it: --allow-files|; for a bucket, use -o s3:)[^\n]*/g, '.')
      // A job in doubt blocks an agent's request under every key.
      .replace(/ Speech cannot be fetched afterwards: [^.]{0,200}\./, '')
      .replace(/ For any other name, use --format\.$/, '')
      .replace(/, or (?:replace (?:it|the link) with --force|-o - for standard output)\b/g, '')
      .replace(/(a)nother --key, or --new without one,/i, '$1nother key')
      .replace(/"mgw [^"]*"|--([a-z][a-z-]*)/g, (match, flag?: string) => {
        if (flag === undefined || personFlags.includes(flag)) return match;
        return flag === 'new' ? 'another key' : flag;
      })
  );
}

/** Returns a job for an agent, without its request. The `job` tool returns the request. */
export function agentView(job: Job): JobView {
  return { ...jobView(job), request: undefined, details: undefined };
}

/** Returns the tool call that is equivalent to an mgw command, or the command itself if there is none. */
export function nextOf(argv: readonly string[] | undefined): { next: NextCall | null; command?: string[] } {
  if (argv === undefined) return { next: null };
  const [mgw, ...words] = argv;
  const ref = words.find((word) => word.startsWith('job_'));
  const [first, second, third] = words;
  const call = (tool: string, args: Record<string, unknown> = {}): { next: NextCall } => ({
    next: { tool, arguments: args },
  });
  if (mgw !== 'mgw') return { next: null, command: [...argv] };
  if (first === 'help') return { next: null };
  if (first === 'models') return call('models');
  if (first === 'spend') return call('spend');
  if (first === 'jobs' && second === 'ls') return call('jobs');
  if (ref !== undefined && first === 'jobs' && second === 'show') return call('job', { ref });
  if (ref !== undefined && first === 'jobs' && second === 'wait') return call('wait', { refs: [ref] });
  if (ref !== undefined && (second === 'fetch' || (first === 'video' && third === 'fetch'))) {
    const at = words.indexOf('-o');
    return call('fetch', { ref, ...(at > 0 && { output: words[at + 1] }) });
  }
  return { next: null, command: [...argv] };
}

/** Returns the next call for a job; null if there is nothing to do. */
export function nextForJob({ id, state, protocol, files }: Job): Answer['next'] {
  if (state === 'queued' || state === 'running') return { tool: 'wait', arguments: { refs: [id] } };
  if (state !== 'succeeded' || protocol === 'tts' || files.length > 0) return null;
  return { tool: 'fetch', arguments: { ref: id } };
}

/** Returns the answer to a call that timed out. The work continues, and the call in `next` returns its outcome. */
export function pendingAnswer(next: NextCall, charged: Charged = 'no'): Answer {
  return { ok: true, charged, retry: 'resume', pending: true, next };
}

/** The members that all successful answers without a charge share. */
export const freeSuccess = { ok: true, charged: 'no', retry: 'safe' } as const;

/** The description of a REF argument in the tools' schemas. */
export const refText = 'a job id or a unique part of one, @key, @last, or a handle of the gateway';

const maxTextLength = 4000;

function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === 'string') return change(value);
  if (Array.isArray(value)) return value.map((each) => mapTexts(each, change));
  if (typeof value !== 'object' || value === null) return value;
  return mapMembers(value, (member) => mapTexts(member, change));
}

function mapMembers(
  value: object,
  change: (member: unknown, name: string) => unknown,
): Record<string, unknown> {
  const members = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(members.map(([name, member]) => [printable(name), change(member, name)]));
}

// A URL's query may contain a signature, and the part before the host may contain a password.
function withoutQueries(text: string): string {
  return text.replace(/https?:\/\/[^\s"'<>]+/gi, (url) =>
    url.replace(/\?.*/s, '?…').replace(/\/\/[^/]*@/, '//'),
  );
}
