import { createHash } from 'node:crypto';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { HashThread, HashedFile } from '../../src/files/hashed-file.ts';
import { freshFolder } from '../support/servers.ts';

const mib = 1024 * 1024;

/** Returns bytes that depend on the seed and the offset. */
function noise(length: number, seed: number): Buffer {
  const bytes = Buffer.alloc(length, seed);
  for (let at = 0; at < length; at += 4096) bytes.writeUInt32LE(at + seed, at);
  return bytes;
}

function opened(maxHashedHere: number): HashedFile {
  const path = join(freshFolder(), 'out.part');
  return new HashedFile(path, openSync(path, 'wx+'), 0, maxHashedHere);
}

/** Returns a function that returns the number of threads that have ended since this call. */
function endedThreads(): () => number {
  const end = vi.spyOn(HashThread.prototype, 'end');
  onTestFinished(() => end.mockRestore());
  return () => end.mock.calls.length;
}

const sha256 = (...pieces: Uint8Array[]): string =>
  createHash('sha256').update(Buffer.concat(pieces)).digest('hex');

describe.each([Infinity, 4 * mib])(
  'a file that is hashed while it is written (up to %s bytes in the calling thread)',
  (maxHashedHere) => {
    it('has the hash of everything written', async () => {
      const file = opened(maxHashedHere);
      const pieces = Array.from({ length: 10 }, (_, index) => noise(mib, index));
      for (const piece of pieces) {
        await file.write([piece]);
        // Wait for each write. The thread, which is notified every 8 MiB, then learns of the last 2 MiB only at the
        // end.
        await file.settle();
      }
      expect(await file.seal()).toMatchObject({ bytes: 10 * mib, sha256: sha256(...pieces) });
      await file.close();
    });

    it('has the hash of the data written since it was restarted', async () => {
      const file = opened(maxHashedHere);
      for (let index = 0; index < 6; index += 1) await file.write([noise(mib, index)]);
      const ended = endedThreads();
      await file.restart();
      expect(ended()).toBe(maxHashedHere === Infinity ? 0 : 1);
      await file.write([Buffer.from('a boat')]);
      expect(await file.seal()).toMatchObject({ bytes: 6, sha256: sha256(Buffer.from('a boat')) });
      await file.close();
    });

    it('has the hash of its final content if part of it was overwritten', async () => {
      const file = opened(maxHashedHere);
      const pieces = Array.from({ length: 6 }, (_, index) => noise(mib, index));
      await file.write(pieces);
      const ended = endedThreads();
      await file.overwrite(Buffer.from('RIFF'), 0);
      expect(ended()).toBe(maxHashedHere === Infinity ? 0 : 1);
      const whole = Buffer.concat(pieces);
      whole.write('RIFF');
      expect(await file.seal()).toMatchObject({ bytes: 6 * mib, sha256: sha256(whole) });
      await file.close();
    });
  },
);
