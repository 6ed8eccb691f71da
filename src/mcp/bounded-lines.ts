import { Transform } from 'node:stream';

/** The longest message that a client may send, bytes (design 16). */
export const maxLineBytes = 10 * 1024 * 1024;

const newline = 0x0a;
const endsShown = 300;

/**
 * Passes whole lines on and drops every longer one, so that one message cannot fill the memory and the next one is read.
 * @param refuse called with the JSON-RPC response to a message that was dropped
 */
export function boundedLines(refuse: (response: string) => void, max = maxLineBytes): Transform {
  let parts: Buffer[] = [];
  let size = 0;
  let dropped: { head: Buffer; tail: Buffer } | undefined;
  const take = (part: Buffer): void => {
    size += part.length;
    if (dropped !== undefined) {
      dropped.tail = Buffer.concat([dropped.tail, part.subarray(-endsShown)]).subarray(-endsShown);
      return;
    }
    parts.push(part);
    if (size <= max) return;
    const line = Buffer.concat(parts);
    // Copies: a view would keep the whole line in memory.
    dropped = {
      head: Buffer.from(line.subarray(0, endsShown)),
      tail: Buffer.from(line.subarray(-endsShown)),
    };
    parts = [];
  };
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      let start = 0;
      for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
        take(chunk.subarray(start, end));
        if (dropped === undefined) this.push(Buffer.concat([...parts, Buffer.from('\n')]));
        else refuse(tooLong(dropped.head.toString(), dropped.tail.toString()));
        [parts, size, dropped, start] = [[], 0, undefined, end + 1];
      }
      if (start < chunk.length) take(chunk.subarray(start));
      done();
    },
  });
}

// Only the ends of the message are known, and its id is at one of them.
function tooLong(head: string, tail: string): string {
  const found =
    /"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")\s*}\s*$/.exec(tail) ??
    /^\s*{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")/.exec(head);
  const id = found?.[1] ?? 'null';
  return `{"jsonrpc":"2.0","id":${id},"error":{"code":-32600,"message":"The message is longer than 10 MiB."}}\n`;
}
