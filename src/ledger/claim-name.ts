import { hash } from 'node:crypto';

/** A claim's name as it is stored: any text is one, in characters that every file system takes, of a bounded length. */
export function claimName(name: string): string {
  const encoded = encodeURIComponent(name);
  // A file's name has 255 bytes at most, and a draft's is longer by 41.
  return encoded.length <= 200 ? encoded : `long-${hash('sha256', name)}`;
}
