import type { Readable } from 'node:stream';

/** So much of a head is looked at, bytes; undici refuses a longer one. */
const maxBytes = 64 * 1024;
const headEnd = /\r?\n\r?\n/;

/**
 * Lets undici read two heads of an answer that it refuses, on a connection that is for one answer: it may tell the
 * handle of what was paid. An unrequested `100 Continue` is skipped (RFC 9110 15.2.1), and if a body has
 * both a length and chunks, the chunks count (RFC 9112 6.3).
 */
export function mendHead(socket: Readable): void {
  let head = '';
  const read = socket.read.bind(socket) as () => Buffer | null;
  // undici takes the bytes by this method. Latin-1 keeps each of them as it is.
  socket.read = () => {
    // Node 26 gives one chunk each time.
    for (let chunk = read(); chunk !== null; chunk = read()) head += chunk.toString('latin1');
    while (/^HTTP\/1\.[01] 100\b/.test(head) && headEnd.test(head)) head = head.slice(endOf(head));
    const isHead = 'HTTP/1.'.startsWith(head.slice(0, 7));
    if (isHead && head.length < maxBytes && !headEnd.test(head)) return null;
    socket.read = read;
    return Buffer.from(isHead ? mended(head) : head, 'latin1');
  };
}

function endOf(text: string): number {
  const found = headEnd.exec(text);
  return found === null ? text.length : found.index + found[0].length;
}

function mended(text: string): string {
  const head = text.slice(0, endOf(text));
  if (!/^transfer-encoding:/im.test(head)) return text;
  return head.replace(/^content-length:.*\r?\n/gim, '') + text.slice(head.length);
}
