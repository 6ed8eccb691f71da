import type { Writable } from 'node:stream';
import type { JobState } from '../../job.ts';

/** Returns a text in a colour or weight, or plain if the stream supports neither. */
export type Paint = (style: Style, text: string) => string;

type Style = keyof typeof codes;

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 };

/** A stream that may be a terminal. */
type Terminal = Writable & { isTTY?: boolean; columns?: number };

/** No colours. */
export const plain: Paint = (_, text) => text;

/**
 * Returns the colours of a stream: none if it is not a terminal, does not support colours, or the user does not want
 * them.
 */
export function paintOn({ isTTY }: Terminal, env: NodeJS.ProcessEnv): Paint {
  const shown = isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb';
  return shown ? (style, text) => (text === '' ? '' : `\x1b[${codes[style]}m${text}\x1b[0m`) : plain;
}

const styleOfState: Record<JobState, Style> = {
  prepared: 'dim',
  sending: 'cyan',
  queued: 'cyan',
  running: 'cyan',
  unknown: 'yellow',
  succeeded: 'green',
  failed: 'red',
  rejected: 'red',
};
const jobAndState = new RegExp(
  `^(job_\\w+ +(?:[a-z][a-z0-9-]* +)?)(${Object.keys(styleOfState).join('|')})(?=[ :]|$)`,
  'gm',
);

/** Colours the state in each line of a job; other lines stay as they are. */
export function withStates(lines: string, paint: Paint): string {
  return lines.replace(
    jobAndState,
    (_, before: string, state: JobState) => before + paint(styleOfState[state], state),
  );
}
