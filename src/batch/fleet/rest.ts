import { exitCodes, type MgwError } from '../../errors.ts';

/** A batch whose budget is spent is looked at again after this, ms. */
export const heldMs = 60_000;
/** A row whose try came to nothing is left alone for so long, ms. */
export const restMs = 15_000;

/** How long a row is left alone before it is tried again, ms; undefined where it has come to its end. */
export function restAfter(error: MgwError): number | undefined {
  switch (error.exitCode) {
    case exitCodes.interrupted:
    case exitCodes.terminated:
      return 0;
    case exitCodes.unavailable:
    case exitCodes.pending:
      return restMs;
    case exitCodes.budget:
      return heldMs;
    case exitCodes.auth:
      return error.charged === 'no' ? restMs : undefined;
    default:
      return error.code === 'balance' || (error.code === 'local_io' && error.job === undefined)
        ? restMs
        : undefined;
  }
}
