import type { Duplex } from 'node:stream';
import buildConnector from 'undici/lib/core/connect.js';
import symbols from 'undici/lib/core/symbols.js';
import Client from 'undici/lib/dispatcher/client.js';
import Pool from 'undici/lib/dispatcher/pool.js';

// Loads only the part of undici that mgw needs, about a quarter of it. undici's index would also load proxies,
// WebSocket, caches and fetch at every start.
export { buildConnector, Client, Pool };

/** The symbol of the property that holds a connection's response parser. */
export const { kParser } = symbols;

/** The members of undici's response parser that mgw uses. */
export interface Parser {
  /** Resumes reading after a pause. */
  resume(): void;
  /** False if the connection's end may mark the response's end. */
  shouldKeepAlive: boolean;
}

/** The maximum length of a head to examine, in bytes. undici rejects a longer head. */
const maxHeadBytes = 64 * 1024;
const headEnd = /\r?\n\r?\n/;

/**
 * Lets undici read heads that it would reject, because the response may contain the handle of a paid task. An
 * unrequested `100 Continue` is skipped (RFC 9110 15.2.1). If a body has both a length and chunks, the chunks take
 * precedence (RFC 9112 6.3). Equal lengths count as one (RFC 9110 8.6), and a line may end without a CR (RFC 9112 2.2).
 */
export function repairHeads(socket: Duplex): void {
  let head = '';
  const read = socket.read.bind(socket) as () => Buffer | null;
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  // undici reads the bytes with this method. Latin-1 preserves every byte.
  const readHead = (): Buffer | null => {
    // Node 26 returns one chunk per call.
    for (let chunk = read(); chunk !== null; chunk = read()) head += chunk.toString('latin1');
    while (/^HTTP\/1\.[01] 100\b/.test(head) && headEnd.test(head)) head = head.slice(headLength(head));
    const mayBeHead = 'HTTP/1.'.startsWith(head.slice(0, 7));
    if (mayBeHead && head.length < maxHeadBytes && !headEnd.test(head)) return null;
    socket.read = read;
    const bytes = Buffer.from(mayBeHead ? repairedHead(head) : head, 'latin1');
    head = '';
    return bytes;
  };
  socket.read = readHead;
  // A connection has one request at a time, so the first bytes after a request are a head.
  socket.write = (...args: unknown[]) => {
    socket.read = readHead;
    return write(...args);
  };
}

function headLength(text: string): number {
  const match = headEnd.exec(text);
  return match === null ? text.length : match.index + match[0].length;
}

function repairedHead(text: string): string {
  const length = headLength(text);
  const head = text.slice(0, length).replace(/\r?\n/g, '\r\n');
  const lengths = head.match(/^content-length:.*\r\n/gim) ?? [];
  const isChunked = /^transfer-encoding:/im.test(head);
  const isRepeated = lengths.length > 1 && new Set(lengths.map((line) => line.slice(15).trim())).size === 1;
  if (!isChunked && !isRepeated) return head + text.slice(length);
  const onlyLength = isChunked ? '' : (lengths[0] ?? '');
  const otherLines = head.replace(/^content-length:.*\r\n/gim, '');
  return otherLines.replace('\r\n', () => `\r\n${onlyLength}`) + text.slice(length);
}
