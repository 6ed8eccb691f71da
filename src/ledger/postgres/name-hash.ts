import { hash } from 'node:crypto';
import type { IndexEntry } from '../index-lines.ts';

/** What stands for a kind and a value that jobs are looked up by: values may be of any length. */
export function nameHash({ kind, value }: Pick<IndexEntry, 'kind' | 'value'>): string {
  return hash('sha256', `${kind}\n${value}`).slice(0, 32);
}
