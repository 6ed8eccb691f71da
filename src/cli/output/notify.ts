import type { Io } from '../io.ts';
import { printableLine } from '../../printable.ts';

const bell = '\u0007';

/**
 * What makes a terminal tell its person something: OSC 9 or OSC 777 where it is known to understand them, else the bell.
 * Undefined for what is no terminal. tmux and screen let nothing but the bell through.
 */
export function notification(text: string, { stderr, env }: Pick<Io, 'stderr' | 'env'>): string | undefined {
  if (stderr.isTTY !== true || env['TERM'] === 'dumb') return undefined;
  if (env['TMUX'] !== undefined || env['TERM']?.startsWith('screen')) return bell;
  const plain = printableLine(text, 200).replaceAll(';', ',');
  const program = env['TERM_PROGRAM'] ?? '';
  if (['iTerm.app', 'WezTerm', 'ghostty'].includes(program) || env['TERM'] === 'xterm-kitty')
    return `\u001b]9;${plain}${bell}`;
  if (/^(foot|rxvt)/.test(env['TERM'] ?? '')) return `\u001b]777;notify;mgw;${plain}${bell}`;
  return bell;
}
