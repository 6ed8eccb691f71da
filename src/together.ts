/**
 * Makes one run of an action do for many callers: whoever asks while it is under way shares the next run with all others
 * who ask until that begins. So a run that began before is never taken for one that was asked for after.
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
