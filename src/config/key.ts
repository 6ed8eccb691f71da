/**
 * An API key that can be sent as it is (design 3).
 * @throws Error whose message says what is wrong; no part of the key is ever in it.
 */
export function checkKey(key: string): string {
  const wrong = faultOf(key);
  if (wrong !== undefined) throw new Error(wrong);
  return key;
}

/** The key in the text of a key file: the line break at its end, which editors and `echo` add, is no part of it. */
export function keyOfFile(text: string): string {
  return text.replace(/^\u{feff}/u, '').replace(/\r?\n$/, '');
}

function faultOf(key: string): string | undefined {
  if (key.trim() === '') return 'it is empty';
  if (/^bearer\s/i.test(key)) return 'it begins with "Bearer "; leave that out, mgw adds it where it belongs';
  if (/["'`\u{2018}-\u{201f}]/u.test(key)) return 'it holds quotes; leave them out';
  if (/[^\x21-\x7e]/.test(key)) return `it holds ${strangeIn(key)}`;
  if (key.length > 4096) return 'it is longer than 4096 characters';
  return undefined;
}

function strangeIn(key: string): string {
  if (/[\p{Cc}\p{Cf}\p{Cs}]/u.test(key)) return 'a line break or another control character';
  return /\s/u.test(key) ? 'white space' : 'a character that is not ASCII';
}
