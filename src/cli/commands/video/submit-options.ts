import type { OutputOptions, WaitOptions } from '../../wait-options.ts';

/** The options of `submit` beside the protocol's own flags. */
export interface SubmitOptions extends WaitOptions, OutputOptions {
  wait?: boolean;
  body?: string;
  set?: string[];
  key?: string;
  new?: boolean;
  dryRun?: boolean;
  check?: boolean;
  endpoint?: string;
}
