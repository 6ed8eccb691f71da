import { createHash } from 'node:crypto';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { HashedFile } from '../../src/http/hashed-file.ts';
import { freshFolder } from '../support/servers.ts';

const mib = 1024 * 1024;

/** Bytes that differ from place to place. */
function noise(length: number, seed: number): Buffer {
  const bytes = Buffer.alloc(length, seed);
  for (let at = 0; at < length; at += 4096) bytes.writeUInt32LE(at + seed, at);
  return bytes;
}

function opened(byThread: boolean): HashedFile {
  const path = join(freshFolder(), 'out.part');
  return new HashedFile(path, openSync(path, 'wx+'), 0, byThread);
}

const sha256 = (...pieces: Uint8Array[]): string =>
  createHash('sha256').update(Buffer.concat(pieces)).digest('hex');

describe.each([false, true])('a file that is hashed while it is written (by a thread: %s)', (byThread) => {
  it('has the hash of all that was written', async () => {
    const file = opened(byThread);
    const pieces = Array.from({ length: 40 }, (_, index) => noise(mib, index));
    for (const piece of pieces) await file.write([piece]);
    expect(await file.seal()).toMatchObject({ bytes: 40 * mib, sha256: sha256(...pieces) });
    await file.close();
  });

  it('has that of what was written since it began anew', async () => {
    const file = opened(byThread);
    for (let index = 0; index < 36; index += 1) await file.write([noise(mib, index)]);
    await file.restart();
    await file.write([Buffer.from('a boat')]);
    expect(await file.seal()).toMatchObject({ bytes: 6, sha256: sha256(Buffer.from('a boat')) });
    await file.close();
  });

  it('has that of what was written over', async () => {
    const file = opened(byThread);
    const pieces = Array.from({ length: 36 }, (_, index) => noise(mib, index));
    await file.write(pieces);
    await file.overwrite(Buffer.from('RIFF'), 0);
    const whole = Buffer.concat(pieces);
    whole.write('RIFF');
    expect(await file.seal()).toMatchObject({ bytes: 36 * mib, sha256: sha256(whole) });
    await file.close();
  });
});
