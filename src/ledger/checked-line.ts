import { crc32 } from 'node:zlib';

const tailStart = ',"crc":"';
const tailLength = `${tailStart}00000000"}`.length;

/** An object as one line of JSON that ends with a checksum of the text before it; no newline. */
export function checkedLine(object: object): string {
  const head = JSON.stringify(object).slice(0, -1);
  return head + tailOf(head);
}

/** The JSON of a line without its checksum, or undefined if the two do not agree. */
export function textOfLine(line: string): string | undefined {
  const head = line.slice(0, -tailLength);
  return line.slice(-tailLength) === tailOf(head) ? `${head}}` : undefined;
}

function tailOf(head: string): string {
  return `${tailStart}${crc32(head).toString(16).padStart(8, '0')}"}`;
}
