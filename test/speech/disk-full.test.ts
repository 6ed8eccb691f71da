import { statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { deadlineIn } from '../../src/clock.ts';
import { FileSink } from '../../src/speech/file-sink.ts';
import { speak } from '../../src/speech/speak.ts';
import { canMount, mountDisk } from '../faults/disk.ts';
import { end } from './frames.ts';
import { depsFor, freshFolder, speechServer } from './harness.ts';

test.skipIf(!canMount).each([
  ['during the stream', Array.from({ length: 40 }, () => Buffer.alloc(8000, 1))],
  ['at its last frame', [Buffer.alloc(90_000, 1)]],
])(
  'a disk that fills up %s leads to exit 10, and the audio that fits is kept and not paid for again',
  async (_, frames) => {
    const server = await speechServer([...frames, end]);
    const folder = freshFolder();
    const disk = mountDisk(join(folder, 'disk'), 64);
    try {
      const target = join(folder, 'disk', 'a.mp3');
      const deps = await depsFor(server.url, folder);
      const run = (): Promise<unknown> =>
        speak(
          {
            body: { req_params: { text: 'Hi' } },
            output: target,
            fresh: false,
            deadline: deadlineIn(60_000, deps.clock),
          },
          deps,
          new FileSink({ target, force: false, mime: 'audio/mpeg' }),
        );
      await expect(run()).rejects.toMatchObject({
        code: 'local_io',
        exitCode: 10,
        charged: 'yes',
        retry: 'never',
        message: expect.stringContaining(`The received audio was saved in ${target}.part`) as string,
      });
      expect(statSync(`${target}.part`).size).toBeGreaterThan(0);
      const [id = ''] = await deps.ledger.ids();
      expect(await deps.ledger.read(id)).toMatchObject({
        state: 'failed',
        error: { code: 'speech_incomplete' },
      });
      disk.resize(1024);
      await expect(run()).rejects.toMatchObject({
        code: 'speech_incomplete',
        exitCode: 9,
        message: expect.stringContaining(`The received audio was saved in ${target}.part`) as string,
      });
      expect(server.requests).toHaveLength(1);
    } finally {
      disk.unmount();
    }
  },
);
