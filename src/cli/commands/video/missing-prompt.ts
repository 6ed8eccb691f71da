import { compose } from '../../../protocols/compose.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Context } from '../../context.ts';
import { readLine } from '../../prompt.ts';
import { readStdin } from '../../stdin.ts';
import { givenFlags } from './flags.ts';
import type { SubmitOptions } from './submit-options.ts';

/**
 * The prompt of a submission that needs one and was given none: asked for on a terminal, read from a pipe. Undefined
 * where nothing may be asked (`--no-input`, CI): what comes down a pipe there is often somebody else's, such as the rest
 * of the script, and would be paid for.
 */
export async function missingPrompt(
  context: Context,
  protocol: Protocol,
  options: SubmitOptions,
): Promise<string | undefined> {
  const { io } = context;
  const { noInput, defaultsFor } = await context.settings();
  if (noInput.value || options.body !== undefined || options.check === false) return undefined;
  const input = { flags: await givenFlags(protocol, { ...options }), set: options.set };
  const model = protocol.modelOf(protocol.normalise(compose(protocol, input))) ?? '';
  const defaults = defaultsFor(protocol.name, model);
  const body = protocol.normalise(compose(protocol, { ...input, defaults }));
  const faults = (await protocol.checks()).check(body);
  if (!faults.some(({ flag, value }) => flag === '--prompt' && value === '')) return undefined;
  if (io.stdin.isTTY === true) return (await readLine(io, 'Prompt: ')).trim() || undefined;
  context.progress.note('Reading the prompt from standard input.');
  return (await readStdin(io)).replace(/\r?\n$/, '') || undefined;
}
