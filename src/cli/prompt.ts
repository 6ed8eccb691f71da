import { createInterface } from 'node:readline/promises';
import { MgwError, usageError } from '../errors.ts';
import { write, type Io } from './io.ts';

/**
 * Asks on the terminal for a line; the question goes to stderr.
 * @throws MgwError with exit code 130 on Ctrl-C and if the input ends (Ctrl-D), and `usage` if stdin is not a terminal.
 */
export async function readLine({ stdin, stderr }: Io, question: string): Promise<string> {
  if (stdin.isTTY !== true) throw usageError('Standard input is not a terminal.');
  const asking = createInterface({ input: stdin, output: stderr });
  try {
    return await new Promise((resolve, reject) => {
      asking.once('SIGINT', () => reject(interrupted())).once('close', () => reject(interrupted()));
      asking.question(question).then(resolve, reject);
    });
  } finally {
    asking.close();
  }
}

interface Terminal {
  setRawMode(on: boolean): unknown;
}

/**
 * Asks on the terminal for a line that is not echoed; the question goes to stderr. Backspace and Ctrl-U edit it.
 * @throws MgwError with exit code 130 on Ctrl-C, and `usage` if stdin is not a terminal.
 */
export async function readHidden(io: Io, question: string): Promise<string> {
  const { stdin } = io;
  if (stdin.isTTY !== true || !isTerminal(stdin)) throw usageError('Standard input is not a terminal.');
  await write(io.stderr, question);
  stdin.setRawMode(true);
  try {
    return await readKeys(io);
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    await write(io.stderr, '\n');
  }
}

function isTerminal(stream: unknown): stream is Terminal {
  return typeof (stream as Partial<Terminal>).setRawMode === 'function';
}

function readKeys({ stdin }: Io): Promise<string> {
  return new Promise((resolve, reject) => {
    let line = '';
    const settle = (end: () => void): void => {
      stdin.off('data', onData).off('end', onEnd).off('error', onError);
      end();
    };
    const onError = (error: Error): void => settle(() => reject(error));
    const onEnd = (): void => settle(() => resolve(line));
    const onData = (chunk: Buffer | string): void => {
      const typed = type(line, chunk.toString());
      line = typed.line;
      if (typed.end === 'done') settle(() => resolve(line));
      if (typed.end === 'interrupted') settle(() => reject(interrupted()));
    };
    stdin.on('data', onData).once('end', onEnd).once('error', onError);
    stdin.resume();
  });
}

function interrupted(): MgwError {
  return new MgwError('usage', 'Interrupted; nothing was saved.', { exit: 'interrupted' });
}

/**
 * Applies keystrokes to a line; returns the line, and whether it is complete. In raw mode the terminal does not edit.
 */
export function type(line: string, keys: string): { line: string; end?: 'done' | 'interrupted' } {
  let typed = line;
  // Arrow keys and bracketed paste send escape sequences, which are not part of the input.
  for (const key of keys.replace(/\x1b\[[\d;]*[ -/]*[@-~]|\x1b./g, '')) {
    if (key === '\x03') return { line: '', end: 'interrupted' };
    if (key === '\r' || key === '\n' || key === '\x04') return { line: typed, end: 'done' };
    if (key === '\x7f' || key === '\b') typed = typed.slice(0, -1);
    else if (key === '\x15') typed = '';
    else typed += key;
  }
  return { line: typed };
}
