import { exitCodes, type MgwError } from '../../errors.ts';

/** The pause before a batch whose budget is spent is tried again, ms. */
export const heldMs = 60_000;
/** The pause before a row is tried again, ms. */
export const shortDelayMs = 15_000;

/**
 * Returns the pause before a row is given to a worker again, ms; undefined if the row has ended. A local error of one
 * machine never ends a row: it may be accepted, and another worker can save its result.
 */
export function retryDelayMs(error: MgwError): number | undefined {
  switch (error.exitCode) {
    case exitCodes.interrupted:
    case exitCodes.terminated:
      return 0;
    case exitCodes.unavailable:
    case exitCodes.pending:
      return shortDelayMs;
    case exitCodes.budget:
      return heldMs;
    case exitCodes.auth:
      return error.charged === 'no' ? shortDelayMs : undefined;
    default:
      return error.code === 'balance' || error.code === 'local_io' ? shortDelayMs : undefined;
  }
}
