import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { buildStorm } from '../storm/build.ts';
import { Workers } from '../storm/workers.ts';
import type { User } from '../support/cli.ts';
import { film } from '../support/film.ts';
import { httpServer, type HttpServer, sendJson } from '../support/servers.ts';
import { userHere } from '../support/one-process.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

// The video is large enough for two parts of a multipart upload.
const large = film(9 * 1024 * 1024);
const clip = renderVideo({ prompt: 'intro', seconds: 0.25, width: 64, height: 64 });

interface Scene {
  user: User;
  store: S3Server;
  /** The number of submissions, by prompt. */
  charges: Map<string, number>;
  /** Called before the gateway or the store handles a request. */
  onRequest: () => void;
  /** Returns temporary files, leftovers and unfinished uploads, but not the drafts of the ledger's files. */
  left: () => string[];
}

async function scene(): Promise<Scene> {
  const store = await s3Server();
  const charges: Scene['charges'] = new Map();
  const prompts = new Map<string, string>();
  const gateway: HttpServer = await httpServer((seen, response) => {
    own.onRequest();
    const [id = ''] = /task_\d+/.exec(seen.path) ?? [];
    if (seen.method === 'POST') {
      const { prompt } = JSON.parse(seen.body) as { prompt: string };
      const created = gateway.create();
      prompts.set(created, prompt);
      charges.set(prompt, (charges.get(prompt) ?? 0) + 1);
      sendJson(response, { task_id: created, status: 'queued' });
    } else if (seen.path.endsWith('content') || seen.path.startsWith('/film'))
      response
        .writeHead(200, { 'content-type': 'video/mp4' })
        .end(prompts.get(id) === 'intro' ? clip : large);
    else sendJson(response, { status: 'success', url: `${gateway.url}/film/${id}` });
  });
  store.faults.push(() => {
    own.onRequest();
    return false;
  });
  const user = userHere(gateway.url, account);
  const temporary = join(user.cwd, 'tmp');
  mkdirSync(temporary);
  user.env['TMPDIR'] = temporary;
  configureStore(user, store.url, 's3://bucket/in');
  const left: Scene['left'] = () => [
    ...store.uploads.keys(),
    ...readdirSync(temporary),
    ...readdirSync(user.cwd, { recursive: true, withFileTypes: true })
      .filter(
        ({ parentPath, name }) =>
          parentPath.endsWith('/uploads') ||
          (/\.(mp4|part|png|lock)/.test(name) && !/^(operation|request)\.png$/.test(name)),
      )
      .map(({ parentPath, name }) => join(parentPath, name)),
  ];
  const own: Scene = { user, store, charges, onRequest: () => undefined, left };
  return own;
}

const command = (name: string, image: string, ...more: string[]): string[] => {
  const flags = ['-m', 'vendor-h3-mini', '-d', '5', '--poll-interval', '50ms', '--key', name, ...more];
  return ['video', 'c', 'submit', name, ...flags, '--image', image, '-o', `s3://bucket/${name}.mp4`];
};

// The disk operation, of about a hundred, at which a command is killed. The simulation tries every operation of a
// submission. The ninth request is the submission, after the uploads of both images. results.test.ts kills a command
// while it uploads a result.
const operation = 42;
const submission = 9;

describe.skipIf(!hasFfmpeg)(
  'a rerun after kill -9 of a command that uploads a file and a stored frame, and saves an object',
  () => {
    let own: Scene;
    beforeEach(async () => {
      own = await scene();
      const saved = await own.user.run(command('intro', 'https://files.example.com/a.png'));
      expect(saved.code, saved.stderr).toBe(0);
    });

    const begin = (name: string): string[] => {
      const image = join(own.user.cwd, `${name}.png`);
      writeFileSync(image, `\x89PNG\r\n\x1a\n${name}`, 'latin1');
      return command(name, '@intro:last', '--last-frame', image);
    };
    const rerun = async (name: string, args: string[]): Promise<void> => {
      const { code, stderr } = await own.user.run(args);
      // Without a response to the submission, nothing proves whether the task exists.
      const isInDoubt = code === 7 && own.store.objects.get(`/bucket/${name}.mp4`) === undefined;
      if (!isInDoubt) {
        expect([code, own.charges.get(name)], `${name}: ${stderr}`).toEqual([0, 1]);
        expect(own.store.objects.get(`/bucket/${name}.mp4`)?.equals(large), name).toBe(true);
      } else {
        expect(own.charges.get(name) ?? 0, name).toBeLessThan(2);
      }
      expect(own.left(), name).toEqual([]);
    };

    test('costs nothing, saves the complete object, and leaves no other files', async () => {
      const { worker } = await buildStorm();
      const workers = new Workers(worker, own.user.cwd);
      onTestFinished(() => workers.close());
      const crash = { at: operation, how: 'torn' } as const;
      const killed = begin('operation');
      expect((await workers.run({ args: killed, env: own.user.env, crash })).code).toBe(137);
      await rerun('operation', killed);
      const name = 'request';
      const args = begin(name);
      const running = own.user.start(args);
      let seen = 0;
      own.onRequest = () => {
        seen += 1;
        if (seen === submission) running.child.kill('SIGKILL');
      };
      expect((await running.result).code).toBe(137);
      own.onRequest = () => undefined;
      await rerun(name, args);
    });
  },
);
