import type { Command } from 'commander';
import type { Run } from '../../command-tree.ts';
import type { Context } from '../../context.ts';
import { bodyOption, optionText, typedText } from '../../input.ts';
import { interruptions, write } from '../../io.ts';
import { single } from '../../options.ts';
import type { Outcome } from '../../output/outcome.ts';
import { addCallOptions, bodyOptions, requestOptions } from '../../wait-options.ts';
import { MgwError, usageError } from '../../../errors.ts';
import { bearer } from '../../../exchange.ts';
import type { JsonObject } from '../../../json.ts';
import { safeCutIndex, printable } from '../../../printable.ts';
import { applySets } from '../../../protocols/compose.ts';
import type { ResponseEnd } from '../../../responses/wire.ts';

const examples = `
Examples:
  $ mgw responses "Write a haiku about the sea" -m text-1 --stream
  $ mgw responses --file question.txt -m text-1 --instructions "Answer in one word" --json
  $ mgw responses --body @request.json --set max_output_tokens=200
A call is not a job: it is not recorded, and is never sent again if it may have been charged.`;

/** `mgw responses [INPUT|-] --model M`: calls the Responses endpoint once (specification 4.5). */
export function registerResponses(command: Command, run: Run): void {
  command
    .argument('[input]', 'the question; - reads it from stdin')
    .optionsGroup('Question:')
    .addOption(single('-m, --model <name>', 'model (to list the models: mgw models)'))
    .option('--stream', 'print the text as it arrives')
    .addOption(single('--instructions <text>', 'how the model should answer'))
    .addOption(single('--file <file>', 'read the input from this file; - reads it from stdin'));
  addCallOptions(command, '10m');
  for (const option of requestOptions('max_output_tokens=200', ...bodyOptions())) command.addOption(option);
  command
    .addHelpText('after', examples)
    .action((input: string | undefined) =>
      run(command, (context) => responses(context, input, command.opts())),
    );
}

async function responses(
  context: Context,
  input: string | undefined,
  options: ResponsesOptions,
): Promise<Outcome> {
  const body = await responsesBody(context, input, options);
  const settings = await context.settings();
  if (options.dryRun) {
    const [{ dryRun }, { responsesExchange }] = await Promise.all([
      import('../video/body.ts'),
      import('../../../responses/wire.ts'),
    ]);
    return dryRun(responsesExchange(body), bearer, settings);
  }
  const { respond } = await import('../../../responses/respond.ts');
  const { clock, progress } = context;
  const deps = {
    client: await context.client(),
    clock,
    signal: interruptions().soft,
    lease: async () => (await context.ledger()).lease(),
    allowances: () => context.allowances(),
    note: (text: string) => progress.note(text),
    retries: settings.retries.value,
    requestTimeoutMs: settings.requestTimeoutMs.value,
  };
  const printer = new Printer(context, options.stream === true);
  const deadline = await context.deadline();
  try {
    const end = await respond(body, deps, (text) => printer.append(text), deadline);
    if (end.kind === 'completed' && printer.isEmpty && context.globals.json !== true)
      progress.note(`The response has no text: ${printable(JSON.stringify(end.response ?? {}), 10_000)}`);
    return outcomeOf(end, context.globals.json ? printer.pendingText : '');
  } catch (error) {
    // Text that arrived before an interruption was paid for. Without --json, it is printed as usual.
    if (!context.globals.json || printer.isEmpty || !(error instanceof MgwError)) throw error;
    return { json: { text: printer.pendingText }, error, paid: error.charged };
  } finally {
    await printer.finish();
  }
}

interface ResponsesOptions {
  model?: string;
  stream?: boolean;
  instructions?: string;
  file?: string;
  body?: string;
  set?: string[];
  dryRun?: boolean;
}

/**
 * Builds the body from the input, flags, `--body` and `--set`.
 * @throws MgwError('usage') naming the invalid or missing value.
 */
async function responsesBody(
  context: Context,
  input: string | undefined,
  options: ResponsesOptions,
): Promise<JsonObject> {
  const { model, instructions, stream } = options;
  const inputText = await inputOf(context, input, options);
  const body: JsonObject = {
    ...(await bodyOption(context, options.body)),
    ...(model !== undefined && { model }),
    ...(inputText !== undefined && { input: inputText }),
    ...(instructions !== undefined && { instructions }),
    ...(stream && { stream: true }),
  };
  applySets(body, options.set ?? []);
  if (typeof body['model'] !== 'string' || body['model'].trim() === '')
    throw usageError('--model NAME is required.', ['mgw', 'models']);
  if (body['input'] === undefined || body['input'] === '')
    throw usageError('No input. Use INPUT, --file FILE, or - for standard input.');
  return body;
}

async function inputOf(
  context: Context,
  input: string | undefined,
  { file, body }: ResponsesOptions,
): Promise<string | undefined> {
  if (input !== undefined && file !== undefined) throw usageError('INPUT cannot be combined with --file.');
  const source = file === undefined ? input : file === '-' ? '-' : `@${file}`;
  if (source === undefined) return undefined;
  if (source === '-' && (body === '-' || body === '@-'))
    throw usageError('The input and --body cannot both be standard input.');
  if (file === undefined && source !== '-') return typedText(source, '--file');
  return (await optionText(context, source, '--file')).text.replace(/^\ufeff/, '').replace(/\r?\n$/, '');
}

/** Returns the outcome of a call. `text` is the received text, for the JSON document. */
function outcomeOf(end: ResponseEnd, text: string): Outcome {
  const response = 'response' in end ? end.response : undefined;
  const json = {
    ...(response && { response }),
    ...(text !== '' && { text: ('text' in end && end.text) || text }),
  };
  const error = errorOf(end);
  return { json, error, paid: error?.charged ?? 'yes' };
}

function errorOf(end: ResponseEnd): MgwError | undefined {
  const charged = { charged: 'yes', retry: 'never' } as const;
  switch (end.kind) {
    case 'completed':
      return undefined;
    case 'incomplete':
      return new MgwError('result_corrupt', `The response is incomplete: ${end.reason}.`, charged);
    case 'failed': {
      const { code, message, requestId } = end.failure;
      return new MgwError(code, message, { exit: 'failed', charged: 'maybe', retry: 'never', requestId });
    }
    case 'pending': {
      const { id } = end.response;
      const next =
        typeof id === 'string' ? ['mgw', 'api', 'GET', `/v1/responses/${encodeURIComponent(id)}`] : undefined;
      return new MgwError('pending', `The response is still ${end.status}.`, { ...charged, next });
    }
    case 'cut':
      return new MgwError('result_corrupt', `The response may be incomplete: ${end.why}.`, charged);
    case 'unreadable': {
      const what = end.excerpt === '' ? 'is empty' : `contains no response object: ${end.excerpt}`;
      const next = ['mgw', 'doctor'];
      return new MgwError('result_corrupt', `The gateway's reply ${what}.`, {
        charged: 'maybe',
        retry: 'never',
        next,
      });
    }
  }
}

// Rethrows an error as charged and not retryable, because the response is not recorded and cannot be printed again.
function rethrowAsCharged(error: unknown): never {
  if (!(error instanceof MgwError)) throw error;
  throw new MgwError(error.code, error.message, { charged: 'yes', retry: 'never', cause: error });
}

/**
 * Prints the response: with `--stream` as it arrives, otherwise when it is complete. Removes control characters if
 * stdout is a terminal.
 */
class Printer {
  /** The text not yet printed; with `--json`, the entire text. */
  pendingText = '';
  readonly #context: Context;
  readonly #isStreaming: boolean;
  /** Whether no text has arrived. */
  isEmpty = true;
  #isLineOpen = false;
  #writing: Promise<void> = Promise.resolve();

  constructor(context: Context, streams: boolean) {
    this.#context = context;
    this.#isStreaming = streams && context.globals.json !== true;
  }

  append(text: string): void {
    this.pendingText += text;
    this.isEmpty &&= text === '';
    if (this.#isStreaming)
      this.#printUpTo(safeCutIndex(this.pendingText, (piece) => this.#context.redact(piece), 'word'));
  }

  /** Prints the remaining text, and ends it with a newline. */
  async finish(): Promise<void> {
    if (this.#context.globals.json) return;
    this.#printUpTo(this.pendingText.length);
    if (this.#isLineOpen) this.#write('\n');
    await this.#writing;
  }

  #printUpTo(end: number): void {
    if (end === 0) return;
    const text = this.pendingText.slice(0, end);
    this.pendingText = this.pendingText.slice(end);
    this.#isLineOpen = !text.endsWith('\n');
    this.#write(printable(this.#context.redact(text), Number.MAX_SAFE_INTEGER));
  }

  #write(text: string): void {
    this.#writing = this.#writing.then(() =>
      write(this.#context.io.stdout, text, 'yes').catch(rethrowAsCharged),
    );
    this.#writing.catch(() => undefined);
  }
}
