import type { MgwError } from '../../errors.ts';
import { globalArguments, type Globals } from '../globals.ts';

/** The error with its `next` made to reach the same gateway and the same ledger when it is typed. */
export function withGlobals(error: MgwError, globals: Globals): MgwError {
  const [mgw, ...rest] = error.next ?? [];
  if (mgw !== 'mgw' || rest.at(-1) === '--help') return error;
  const flags = globalArguments(globals).filter(([name = '']) => !rest.includes(name));
  return Object.assign(Object.create(error) as MgwError, { next: [mgw, ...flags.flat(), ...rest] });
}
