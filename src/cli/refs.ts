import { usageError } from '../errors.ts';
import type { Io } from './io.ts';
import { readStdin } from './stdin.ts';

/** The REFs of a command; `-` stands for those on standard input, one a line or separated by blanks. */
export async function readRefs(refs: string[], io: Io): Promise<string[]> {
  let read: string[] = [];
  for (const ref of refs) {
    // Not pushed one by one as arguments: a ledger may hold more jobs than a call takes.
    const named = ref === '-' ? (await readStdin(io)).split(/\s+/).filter((word) => word !== '') : [ref];
    read = read.concat(named);
  }
  const empty = read.find((ref) => ref.trim() === '');
  if (empty !== undefined) throw usageError('A REF is empty. Give a job id, @key, @last or a handle.');
  return [...new Set(read)];
}
