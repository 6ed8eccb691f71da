import { CommanderError } from 'commander';
import type { Action, ActionKind } from './command-tree.ts';
import { type Context, createContext } from './context.ts';
import { requireUtf8 } from './encoding.ts';
import type { Globals } from './options.ts';
import type { Screen, Screens } from './help/format.ts';
import { wrap } from './help/wrap.ts';
import { columnsOf, type Io, isWorkflow, withoutCommandsIn, write } from './io.ts';
import { errorText, paintOn, withStates } from './output/human.ts';
import { type Hint, withHint } from './output/hint.ts';
import { exitCodeOf, jsonDocument, type Outcome, unknownFields } from './output/outcome.ts';
import { createProgram, type Program, wordsBeforeDashes } from './program.ts';
import { helpOf } from './usage.ts';
import { originText } from '../config/layers.ts';
import { exitCodes, messageOf, MgwError, toMgwError } from '../errors.ts';
import { withGlobals } from '../flows/next.ts';
import { asSentence } from '../http/failures.ts';
import { requireNode } from '../installation.ts';
import { nearestName } from '../nearest.ts';
import { printable } from '../printable.ts';
import { secretRedactor, minSecretLength } from '../redact.ts';

/**
 * Runs a command line and returns the process exit code (design 3). Never throws. This is the only place that turns an
 * outcome or an error into output and an exit code.
 */
export async function main(argv: string[], processIo: Io = process): Promise<number> {
  const io = isWorkflow(processIo.env) ? withoutCommandsIn(processIo) : processIo;
  // `write` reports stream errors to its caller. Without a listener, they would also end the process.
  for (const stream of [io.stdout, io.stderr]) stream.on('error', () => undefined);
  let context: Context | undefined;
  const commandOutcome = await outcomeOf(
    argv,
    screensOf(argv, io),
    (globals) => (context = createContext(io, globals, processIo === process ? processStart() : undefined)),
  );
  const globals = context?.globals ?? {
    json: wantsJson(argv),
    color: !wordsBeforeDashes(argv).includes('--no-color'),
  };
  const withOrigin = await withKeyOrigin(commandOutcome, context);
  const error = withOrigin.error && withGlobals(withOrigin.error, globals);
  const outcome: Outcome = { ...withOrigin, error };
  // Errors in flags are detected before any setting is read, so `context` may not have the keys.
  const redactKeys = secretRedactor(await keysFor(outcome, processIo.env));
  const redact: Redact = (text) => redactKeys(context?.redact(text) ?? text);
  let exitCode = exitCodeOf(outcome);
  context?.progress.stop();
  let isPrinted = false;
  try {
    await annotate(outcome, processIo, redact);
    await print(outcome, io, globals, redact);
    isPrinted = true;
  } catch (error) {
    await reportOutputError(error, outcome, io, redact);
    exitCode ||= exitCodes.local;
  }
  if (context !== undefined && isPrinted) await afterRun(outcome, context);
  await context?.close();
  // Record the delivery last. If the process is killed earlier, the same command resumes.
  if (isPrinted) await recordPrinted(outcome, context);
  await context?.closeLedger();
  if (globals.onDone !== undefined) {
    const document = jsonDocument(outcome, { ...globals, fields: undefined });
    const { runOnDone } = await import('./end-actions.ts');
    await runOnDone(globals.onDone, redact(document), io);
  }
  return exitCode;
}

// Does not use `performance.timeOrigin`, which would load a Node module at every start.
function processStart(): number {
  return Date.now() - 1000 * process.uptime();
}

// Reads the key files only after an error, because most commands succeed.
async function keysFor({ error }: Outcome, env: Io['env']): Promise<string[]> {
  const variable = env['MGW_API_KEY'] ?? '';
  if (error === undefined) return variable.length < minSecretLength ? [] : [variable];
  return (await import('../config/read.ts')).keysAtHand(env);
}

// Loads the code for end actions only if it is needed. Loads it before the command runs, because mgw may be upgraded or
// removed while the command waits.
async function loadEndActions({ globals, io: { env } }: Context, kind: ActionKind): Promise<void> {
  const isReported = kind === 'runs jobs' && hasReportFile(env);
  if (globals.onDone !== undefined || globals.notify || globals.open || isReported)
    await import('./end-actions.ts');
  if (kind === 'runs jobs' && isWorkflow(env)) await import('./output/github.ts');
}

async function afterRun(outcome: Outcome, context: Context): Promise<void> {
  const { globals, io } = context;
  if (globals.notify || globals.open || (outcome.isRun && hasReportFile(io.env)))
    await (await import('./end-actions.ts')).runEndActions(outcome, context);
}

function hasReportFile(env: Io['env']): boolean {
  return Boolean(env['GITHUB_OUTPUT'] ?? env['GITHUB_STEP_SUMMARY']);
}

async function outcomeOf(
  argv: string[],
  screens: Screens,
  open: (globals: Globals) => Context,
): Promise<Outcome> {
  let outcome: Outcome = { json: {} };
  let kind: ActionKind;
  const runAction = async (globals: Globals, action: Action, actionKind?: ActionKind): Promise<void> => {
    kind = actionKind;
    const context = open(globals);
    await loadEndActions(context, kind);
    outcome = (await action(context)) ?? outcome;
  };
  const withNext = (result: Outcome): Promise<Outcome> => {
    const isRun = kind === 'runs jobs' && exitCodeOf(result) !== exitCodes.usage;
    return withNextCommand({ ...result, isRun }, program, argv);
  };
  let program: Program | undefined;
  try {
    requireNode();
    requireUtf8(argv);
    program = createProgram(argv, runAction, screens);
    await program.run();
    return await withNext(outcome);
  } catch (error) {
    const text = program?.parserOutput().trimEnd() ?? '';
    if (!(error instanceof CommanderError)) {
      const mgwError = toMgwError(error);
      const json = mgwError.job && { job: (await import('../jobs/view.ts')).jobView(mgwError.job) };
      return withNext({ json: json ?? {}, error: mgwError, help: text });
    }
    const helped = wantsJson(argv) ? program?.helpTarget() : undefined;
    if (helped !== undefined) {
      const { helpData } = await import('./help/command-data.ts');
      return helpData(helped).then(
        (json) => ({ json }),
        (reason: unknown) => ({ json: {}, error: toMgwError(reason) }),
      );
    }
    return { json: { [error.code === 'commander.version' ? 'version' : 'help']: text }, text };
  }
}

async function withNextCommand(
  outcome: Outcome,
  program: Program | undefined,
  argv: string[],
): Promise<Outcome> {
  if (outcome.error === undefined || program === undefined) return outcome;
  // A handle that is not in the ledger has no job, and therefore no id.
  const reportedJob = outcome.json['job'] as Hint['job'];
  const job = reportedJob?.id === undefined ? undefined : reportedJob;
  const help = await helpOf(program.root, argv);
  return {
    ...outcome,
    error: withHint(outcome.error, { argv, help, job, protocolNames: await namesFor(outcome) }),
  };
}

// An error that lists protocols comes from a video command, which has already loaded them.
async function namesFor({ error }: Outcome): Promise<readonly string[]> {
  return error?.protocols === undefined ? [] : (await import('../protocols/registry.ts')).protocolNames;
}

// Adds the source of the refused key and its gateway to the error, because the user may have several keys and
// gateways.
async function withKeyOrigin(outcome: Outcome, context: Context | undefined): Promise<Outcome> {
  const { error } = outcome;
  // An error that suggests a solution (another key, an origin to trust) already mentions the key and the gateway.
  if (context === undefined || error?.code !== 'auth' || error.next?.join(' ') !== 'mgw auth status')
    return outcome;
  const { baseUrl, key, sandbox } = await context.settings();
  if (sandbox.value || baseUrl === undefined || key === undefined) return outcome;
  // A recorded refusal may be about a key other than the current one.
  const { accountOf } = await import('../flows/settings.ts');
  if (error.job?.state === 'rejected' && error.job.record.account !== accountOf(key.read())) return outcome;
  const keyOrigin = `Sent to ${new URL(baseUrl.value).host} with the key from ${originText(key)}.`;
  return { ...outcome, error: error.with({}, `${asSentence(error.message)} ${keyOrigin}`) };
}

function wantsJson(argv: string[]): boolean {
  return wordsBeforeDashes(argv).some((word) => word === '--json' || /^--fields(=|$)/.test(word));
}

// Searches the command line for flags, because help is printed before flags are parsed.
function screensOf(argv: string[], { stdout, stderr, env }: Io): Screens {
  const flags = wordsBeforeDashes(argv);
  const color = !flags.includes('--no-color') && !wantsJson(argv);
  const screenOf = (stream: Io['stdout']): Screen => ({
    width: columnsOf(stream) ?? 80,
    paint: paintOn(stream, env, color),
  });
  return { out: screenOf(stdout), err: screenOf(stderr) };
}

type Redact = (text: string) => string;

async function print(outcome: Outcome, io: Io, globals: Globals, redact: Redact): Promise<void> {
  const { text, help, silent, error } = outcome;
  if (globals.json && !silent) {
    await write(io.stdout, redact(`${jsonDocument(outcome, globals)}\n`));
    if (error === undefined && !globals.quiet) await warnOfFields(outcome, io, globals, redact);
    // Prints the handle on stderr as well, because the handle is the only reference to a paid task.
    if (error?.handle === undefined) return;
    return write(io.stderr, redact(`${errorText(error)}\n`)).catch(() => undefined);
  }
  if (text)
    await write(io.stdout, redact(`${withStates(text, paintOn(io.stdout, io.env, globals.color))}\n`));
  if (error === undefined) return explainPartial(outcome, io);
  const lines = [
    ...(help ? [help, ''] : []),
    coloured(errorText(error, columnsOf(io.stderr)), io, globals),
    ...(globals.verbose ? traceOf(error) : []),
  ];
  await write(io.stderr, redact(`${lines.join('\n')}\n`)).catch(() => undefined);
}

// Warns instead of failing, because the command has run and may have paid, so its exit code must not change.
async function warnOfFields(
  { json }: Outcome,
  io: Io,
  { fields = [] }: Globals,
  redact: Redact,
): Promise<void> {
  const { unknown, known } = unknownFields(json, fields);
  for (const name of unknown) {
    const near = nearestName(name, known, 2);
    const hint = near === undefined ? `Available: ${known.join(', ')}.` : `Did you mean ${near}?`;
    await write(io.stderr, redact(`mgw: --fields: the JSON document has no member ${name}. ${hint}\n`)).catch(
      () => undefined,
    );
  }
}

// Writes the error as an annotation, the only runner command that mgw writes.
async function annotate({ error }: Outcome, { env, stderr }: Io, redact: Redact): Promise<void> {
  if (!isWorkflow(env) || error === undefined) return;
  const { annotation } = await import('./output/github.ts');
  await write(stderr, redact(`${annotation(error)}\n`)).catch(() => undefined);
}

function coloured(text: string, io: Io, globals: Globals): string {
  const paint = paintOn(io.stderr, io.env, globals.color);
  return text.replace(/^mgw:/, paint('red', 'mgw:')).replace(/^ {2}next:/m, paint('bold', '  next:'));
}

// Explains the exit code, because each job has reported only its own error.
async function explainPartial({ exitCode, partialText }: Outcome, io: Io): Promise<void> {
  if (exitCode !== exitCodes.partial) return;
  const text = `mgw: ${partialText ?? 'Some jobs failed or have not finished.'} (exit ${exitCode})`;
  const lines = wrap(text, columnsOf(io.stderr) ?? text.length, '  ');
  await write(io.stderr, `${lines}\n`).catch(() => undefined);
}

function traceOf(error: Error & { code: string }): string[] {
  if (error.code !== 'internal' || !(error.cause instanceof Error)) return [];
  return [printable(error.cause.stack ?? '')];
}

// The text that could not be printed may be the only reference to a paid job, so print it on stderr. Prefer the
// command's own error, which reports whether money was spent.
async function reportOutputError(
  outputError: unknown,
  outcome: Outcome,
  io: Io,
  redact: Redact,
): Promise<void> {
  const { onPrinted, text = '', paid, error: commandError } = outcome;
  const { code, message } = toMgwError(outputError);
  const charged = paid ?? (onPrinted === undefined ? 'no' : 'yes');
  const retry = onPrinted !== undefined ? 'resume' : charged === 'no' ? 'safe' : 'never';
  const error = commandError ?? new MgwError(code, message, { charged, retry });
  const lines = [
    ...(commandError === undefined ? [] : [`mgw: ${message}`]),
    errorText(error),
    ...(text === '' || (commandError === undefined && charged === 'no') ? [] : [printable(text)]),
  ];
  await write(io.stderr, redact(`${lines.join('\n')}\n`)).catch(() => undefined);
}

// Records that the outcome was printed. A failure is only reported, because its only effect is that the same command
// resumes the job.
async function recordPrinted({ onPrinted }: Outcome, context: Context | undefined): Promise<void> {
  await onPrinted?.().catch((error: unknown) => {
    context?.progress.note(`Could not record the delivery: ${messageOf(error)}`);
  });
}
