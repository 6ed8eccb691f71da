import type { IncomingHttpHeaders } from 'node:http';

/**
 * True where a request comes from a web page of another origin, or reached this server under a name that is not its
 * own (DNS rebinding): a page must not be able to run up a bill or read results. A browser itself may come: its
 * address bar, and its player, which asks for a file as `same-origin`. `origin` is `http://127.0.0.1:PORT`.
 */
export function isForeign(headers: IncomingHttpHeaders, origin: string): boolean {
  const site = headers['sec-fetch-site'] ?? 'none';
  return (
    !ownHosts(origin).includes((headers.host ?? '').toLowerCase()) ||
    (headers.origin ?? origin) !== origin ||
    !['none', 'same-origin'].includes(site)
  );
}

/** At port 80, clients leave the port out. */
function ownHosts(origin: string): string[] {
  const port = new URL(origin).port || '80';
  return ['127.0.0.1', 'localhost'].flatMap((name) => [`${name}:${port}`, ...(port === '80' ? [name] : [])]);
}
