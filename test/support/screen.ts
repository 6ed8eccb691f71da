import { PassThrough, Writable } from 'node:stream';
import { main } from '../../src/cli/main.ts';

/** A terminal's output stream, or a pipe's if `columns` is absent. */
class Shown extends Writable {
  text = '';
  readonly isTTY: boolean;
  constructor(readonly columns?: number) {
    super();
    this.isTTY = columns !== undefined;
  }
  // The terminal functions that a spinner calls.
  cursorTo = (): boolean => true;
  moveCursor = (): boolean => true;
  clearLine = (): boolean => true;
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

/** The screen after a run. */
export interface ScreenRun {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs `mgw` in this process on a terminal with `columns` columns, or with pipes if `columns` is absent. */
export async function runOnScreen(
  args: string[],
  env: NodeJS.ProcessEnv,
  columns?: number,
  typed?: string,
): Promise<ScreenRun> {
  const stdin = Object.assign(new PassThrough(), { isTTY: typed !== undefined });
  if (typed === undefined) stdin.end();
  else stdin.write(typed);
  const [stdout, stderr] = [new Shown(columns), new Shown(columns)];
  const code = await main(args, { stdin, stdout, stderr, env });
  return { code, stdout: stdout.text, stderr: stderr.text };
}
