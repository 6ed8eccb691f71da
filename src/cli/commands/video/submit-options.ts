import type { JsonObject } from '../../../json.ts';
import type { BudgetOptions } from '../../budget-options.ts';
import type { OutputOptions, WaitOptions } from '../../wait-options.ts';

/** The options of `submit` apart from the protocol's own flags. */
export interface SubmitOptions extends WaitOptions, OutputOptions, BudgetOptions {
  wait?: boolean;
  /** The body itself, or what `--body` names. */
  body?: string | JsonObject;
  set?: string[];
  key?: string;
  new?: boolean;
  dryRun?: boolean;
  check?: boolean;
  endpoint?: string;
}
