import { setMaxListeners } from 'node:events';

/**
 * Aborts `to` when `from` is aborted, with its reason.
 * @returns stops that; call it when `to` is no longer needed, since many calls may follow one signal
 */
export function abortWith(from: AbortSignal | undefined, to: AbortController): () => void {
  if (from === undefined) return () => undefined;
  // Node warns on stderr if many calls listen to one signal. (A signal of AbortSignal.any would stay in its memory for good.)
  setMaxListeners(0, from);
  const pass = (): void => to.abort(from.reason as unknown);
  if (from.aborted) pass();
  else from.addEventListener('abort', pass, { once: true });
  return () => from.removeEventListener('abort', pass);
}
