import { CommanderError } from 'commander';
import { exitCodes, type MgwError } from '../errors.ts';
import { createContext, type Context } from './context.ts';
import { globalArguments, type Globals } from './globals.ts';
import { write, type Io } from './io.ts';
import { errorText } from './output/human.ts';
import { jsonDocument } from './output/json.ts';
import { exitCodeOf, toMgwError, type Outcome } from './output/outcome.ts';
import { createProgram, type Action } from './program.ts';

/**
 * Runs one command line and sets `process.exitCode`; never throws. This is the one place that turns an outcome or
 * an error into output and an exit code.
 */
export async function main(argv: string[], io: Io = process): Promise<void> {
  io.stdout.on('error', endQuietly);
  io.stderr.on('error', () => undefined);
  const outcome = await run(argv, io);
  process.exitCode = outcome === undefined ? exitCodes.ok : exitCodeOf(outcome);
}

// `mgw … | head` closes the pipe: that is the reader's wish and no error.
function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error;
}

async function run(argv: string[], io: Io): Promise<Outcome | undefined> {
  let context: Context | undefined;
  let outcome: Outcome | undefined;
  const act = async (globals: Globals, action: Action): Promise<void> => {
    context = createContext(io, globals);
    outcome = await action(context);
  };
  try {
    await createProgram(io, act).parseAsync(argv, { from: 'user' });
  } catch (error) {
    // Help and the version end commander's run by an error of their own.
    if (error instanceof CommanderError && error.exitCode === 0) return undefined;
    outcome = { json: {}, error: toMgwError(error) };
  }
  if (outcome !== undefined) await print(outcome, io, context?.globals ?? { json: asksForJson(argv) });
  await context?.close();
  return outcome;
}

function asksForJson(argv: string[]): boolean {
  const end = argv.indexOf('--');
  return (end === -1 ? argv : argv.slice(0, end)).includes('--json');
}

async function print(outcome: Outcome, io: Io, globals: Globals): Promise<void> {
  const complete = { ...outcome, error: outcome.error && withGlobals(outcome.error, globals) };
  if (globals.json && !outcome.silent) return write(io.stdout, `${jsonDocument(complete)}\n`);
  if (complete.text !== undefined && complete.text !== '') await write(io.stdout, `${complete.text}\n`);
  if (complete.error !== undefined) await write(io.stderr, `${errorText(complete.error)}\n`);
}

// What is printed to be typed next must reach the same gateway and the same ledger.
function withGlobals(error: MgwError, globals: Globals): MgwError {
  const [mgw, ...rest] = error.next ?? [];
  if (mgw !== 'mgw') return error;
  return Object.assign(Object.create(error) as MgwError, {
    next: [mgw, ...globalArguments(globals), ...rest],
  });
}
