import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Returns the cache home of all tested processes. The suite creates it, because mgw does not create a missing home. */
export function cacheHome(): string {
  return join(tmpdir(), 'mgw-cache');
}
