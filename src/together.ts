/**
 * Shares the runs of an action among callers. All calls during one run share the next run, so that each caller gets a run
 * that began after its call.
 */
export function together(action: () => Promise<void>): () => Promise<void> {
  let last = Promise.resolve();
  let next: Promise<void> | undefined;
  return () => {
    if (next !== undefined) return next;
    next = last
      .catch(() => undefined)
      .then(() => {
        next = undefined;
        return action();
      });
    last = next;
    return next;
  };
}
