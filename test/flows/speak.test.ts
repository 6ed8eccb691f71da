import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.ts';
import { speak, speakInPieces, type SpeechSubmission } from '../../src/flows/speak.ts';
import { createClient } from '../../src/http/client.ts';
import type { SpeechFormat } from '../../src/speech/compose.ts';
import type { ObjectStore } from '../../src/store/s3-store.ts';
import { key } from '../jobs/harness.ts';
import { end } from '../speech/frames.ts';
import { speechServer, type SpeechServer } from '../speech/harness.ts';
import { onEnd } from '../support/clean-ups.ts';
import { freshFolder } from '../support/servers.ts';
import { flowDeps } from './flow-deps.ts';

const audio = Buffer.from('audio');
const format: SpeechFormat = { name: 'mp3', wire: 'mp3', mime: 'audio/mpeg', wav: false };
const bodyOf = (text: string): { req_params: object } => ({
  req_params: { text, audio_params: { format: 'mp3' } },
});
const composed = { body: bodyOf('Hello.'), format, sampleRate: 24000 } as Parameters<typeof speak>[0];
const wish = (more: Partial<SpeechSubmission>): SpeechSubmission => ({
  ...{ output: '/nowhere', force: false, sidecar: false, fresh: false },
  ...{ deadline: { remainingMs: () => Infinity }, ...more },
});

interface Scene {
  server: SpeechServer;
  deps: Awaited<ReturnType<typeof flowDeps>>;
  folder: string;
  puts: string[];
}

async function scene(): Promise<Scene> {
  const [server, folder, puts] = [await speechServer([audio, end]), freshFolder(), [] as string[]];
  const client = createClient({ baseUrl: new URL(server.url), key, userAgent: 'test' });
  onEnd(() => client.close());
  const store: Partial<ObjectStore> = {
    checkFree: () => Promise.resolve(),
    has: (url) => Promise.resolve(puts.includes(url)),
    put: (url, { path }) => {
      expect(readFileSync(path)).toEqual(audio);
      puts.push(url);
      return Promise.resolve();
    },
  };
  const objects = (): Promise<ObjectStore> => Promise.resolve(store as ObjectStore);
  const deps = await flowDeps(join(folder, 'state'), { client, objects, clock: systemClock });
  return { server, deps, folder, puts };
}

describe('speech', () => {
  it('saved as an object has no sidecar, and says so before it pays', async () => {
    const { server, deps } = await scene();
    const wanted = wish({ output: 's3://m/a.mp3', sidecar: true });
    await expect(speak(composed, wanted, deps)).rejects.toMatchObject({ code: 'usage' });
    expect(server.requests).toEqual([]);
  });

  it('is uploaded once, under the id of its job, and leaves no file', async () => {
    const { server, deps, puts } = await scene();
    const wanted = wish({ output: 's3://m/{id}.mp3' });
    for (let run = 1; run <= 2; run += 1) {
      const done = await speak(composed, wanted, deps);
      const url = `s3://m/${done.job.id}.mp3`;
      expect([done.files.map(({ path }) => path), done.isResumed]).toEqual([[url], run > 1]);
      expect(done.job.files.map(({ path }) => path)).toContain(url);
      expect([puts, readdirSync(deps.uploadFolder)]).toEqual([[url], []]);
    }
    expect(server.requests).toHaveLength(1);
  });

  it('is saved to a file with a sidecar, whose path must be free', async () => {
    const { server, deps, folder } = await scene();
    const output = join(folder, 'a.mp3');
    const done = await speak(composed, wish({ output, sidecar: true }), deps);
    expect([done.files.map(({ path }) => path), existsSync(`${output}.json`)]).toEqual([[output], true]);
    const again = wish({ output, sidecar: true, fresh: true });
    await expect(speak(composed, again, deps)).rejects.toMatchObject({ code: 'output_exists' });
    expect(server.requests).toHaveLength(1);
  });

  it('is written to a stream, with a note if it cannot be marked there', async () => {
    const { deps } = await scene();
    const output = new PassThrough();
    const done = await speak(composed, wish({ output, mark: true }), deps);
    expect([output.read(), done.files]).toEqual([audio, []]);
    expect(deps.notes).toHaveLength(1);
  });

  it('in pieces for a stream is kept in the state folder, under the name of its text', async () => {
    const { server, deps, folder } = await scene();
    const output = new PassThrough();
    const stateDir = join(folder, 'state');
    const pieces = {
      ...{ format, sampleRate: 24000, concurrency: 2, stateDir, joiner: (piece: Uint8Array) => piece },
      bodies: [bodyOf('One.'), bodyOf('Two.')] as Parameters<typeof speakInPieces>[0]['bodies'],
    };
    const spoken = await speakInPieces(pieces, wish({ output }), deps);
    expect([output.read(), spoken.jobs.length]).toEqual([Buffer.concat([audio, audio]), 2]);
    const [name = ''] = readdirSync(join(stateDir, 'speech'));
    expect(name).toMatch(/^[\da-f]{32}\./);
    expect(server.requests).toHaveLength(2);
  });
});
