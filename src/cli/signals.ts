import type { Signals } from '../payment/pay-once.ts';

/**
 * From here on a first SIGINT or SIGTERM asks to stop (`soft`), a second one gives up what is outstanding
 * (`hard`). An answer that has been paid for is awaited in between (design 5).
 */
export function interruptions(): Signals {
  const soft = new AbortController();
  const hard = new AbortController();
  const onSignal = (signal: NodeJS.Signals): void => {
    if (soft.signal.aborted) hard.abort(signal);
    else soft.abort(signal);
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onSignal);
  return { soft: soft.signal, hard: hard.signal };
}
