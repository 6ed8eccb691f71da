import type { SettingFlags } from '../config/rules.ts';
import type { MgwError } from '../errors.ts';
import { fetchCommand } from '../jobs/errors.ts';

/** The settings that change which gateway or ledger is meant. */
type Globals = Pick<SettingFlags, 'profile' | 'baseUrl' | 'sandbox' | 'allowHttp'>;

/** The global flags, each with its value, that change which gateway or ledger is meant: a printed command needs them. */
export function globalArguments(globals: Globals): string[][] {
  return [
    ...(globals.profile === undefined ? [] : [['--profile', globals.profile]]),
    ...(globals.baseUrl === undefined ? [] : [['--base-url', globals.baseUrl]]),
    ...(globals.sandbox ? [['--sandbox']] : []),
    ...(globals.allowHttp ? [['--allow-http']] : []),
  ];
}

/** The error with its `next` made to reach the same gateway and the same ledger when it is typed. */
export function withGlobals(error: MgwError, globals: Globals): MgwError {
  const [mgw, ...rest] = error.next ?? [];
  if (mgw !== 'mgw' || rest.at(-1) === '--help') return error;
  const flags = globalArguments(globals).filter(([name = '']) => !rest.includes(name));
  return error.with({ next: [mgw, ...flags.flat(), ...rest] });
}

/**
 * The error of a command with `-o`, with a command to type that puts the file there (design 4): what only waits would
 * save nothing.
 */
export function withOutput(
  error: MgwError,
  { output, force }: { output?: string | undefined; force?: boolean | undefined },
): MgwError {
  const { job, next, retry } = error;
  if (output === undefined || job === undefined || job.protocol === 'tts') return error;
  const own = next?.includes('fetch') || next?.includes('resolve') ? next : fetchCommand(job);
  if (own !== next && retry !== 'resume') return error;
  return error.with({ next: [...own, '-o', output, ...(force ? ['--force'] : [])] });
}
