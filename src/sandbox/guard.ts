import type { IncomingHttpHeaders } from 'node:http';

/**
 * True where a request comes from a web page, or reached this server under a name that is not its own (DNS
 * rebinding): a page must not be able to run up a bill or read results. `origin` is `http://127.0.0.1:PORT`.
 */
export function isForeign(headers: IncomingHttpHeaders, origin: string): boolean {
  const site = headers['sec-fetch-site'];
  return (
    !ownHosts(origin).includes(headers.host ?? '') ||
    headers.origin !== undefined ||
    (site !== undefined && site !== 'none')
  );
}

function ownHosts(origin: string): string[] {
  const { host, port } = new URL(origin);
  return [host, `localhost:${port}`];
}
