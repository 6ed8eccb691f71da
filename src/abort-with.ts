/**
 * Aborts `to` when `from` is aborted, with its reason.
 * @returns stops that; call it when `to` is no longer needed, since many calls may follow one signal
 */
export function abortWith(from: AbortSignal | undefined, to: AbortController): () => void {
  if (from === undefined) return () => undefined;
  // Through a signal of its own: Node warns on stderr if many calls listen to one signal.
  const own = AbortSignal.any([from]);
  const pass = (): void => to.abort(from.reason as unknown);
  if (own.aborted) pass();
  else own.addEventListener('abort', pass, { once: true });
  return () => own.removeEventListener('abort', pass);
}
