import { MgwError } from '../../../errors.ts';
import { printable } from '../../../printable.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';

// Nothing is recorded of a response that it could be printed from again.
function lost(error: unknown): never {
  if (!(error instanceof MgwError)) throw error;
  throw new MgwError(error.code, error.message, { charged: 'yes', retry: 'never', cause: error });
}

/** The answer on its way to standard output: at once where it streams, else when it is whole. */
export class Printer {
  text = '';
  readonly #context: Context;
  readonly #atOnce: boolean;
  #writing: Promise<void> = Promise.resolve();

  constructor(context: Context, streams: boolean) {
    this.#context = context;
    this.#atOnce = streams && context.globals.json !== true;
  }

  take(text: string): void {
    this.text += text;
    if (this.#atOnce) this.#put(text);
  }

  /** Ends with a newline, as text on a terminal does. */
  async finish(): Promise<void> {
    if (this.#context.globals.json) return;
    if (!this.#atOnce) this.#put(this.text);
    if (this.text !== '' && !this.text.endsWith('\n')) this.#put('\n');
    await this.#writing;
  }

  // A terminal must not obey what a model says; a pipe gets it as it is.
  #put(text: string): void {
    const { stdout } = this.#context.io;
    const safe = this.#context.redact(text);
    const shown = stdout.isTTY ? printable(safe, Number.MAX_SAFE_INTEGER) : safe;
    this.#writing = this.#writing.then(() => write(stdout, shown, 'yes').catch(lost));
    this.#writing.catch(() => undefined);
  }
}
