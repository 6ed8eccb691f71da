import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { JobFile } from '../job.ts';

/** True where a recorded file is there with the recorded content. */
export async function isIntact(file: JobFile): Promise<boolean> {
  const found = await stat(file.path).catch(() => undefined);
  if (found?.isFile() !== true || found.size !== file.bytes) return false;
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file.path, { highWaterMark: 1024 * 1024 }))
    hash.update(chunk as Uint8Array);
  return hash.digest('hex') === file.sha256;
}
