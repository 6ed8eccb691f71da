import { hurry } from '../support/one-process.ts';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect } from 'vitest';
import { canaryKey } from '../support/cli.ts';
import { audioFrames, endFrame, frame, framesOf } from './frames.ts';
import type { Answer } from './gateway.ts';
import { it, shown, type Open, type Scene, type SceneOptions } from './scene.ts';
import { until } from './until.ts';

const audio = randomBytes(5000);

/** Opens a scene for speech whose expected output is `audio`. */
function opened(open: Open, options: SceneOptions = {}): Promise<Scene> {
  return open('tts', { ...options, video: audio });
}

/** Returns a response that streams the given pieces. The stream is complete unless `isComplete` is false. */
const stream =
  (pieces: readonly (string | Buffer)[], isComplete = true): Answer =>
  ({ gateway, response }) =>
    gateway.speak(response, pieces, isComplete);

/** Expects the given exit code from the first run and the rerun, no request from the rerun, and no published file. */
async function expectIncomplete(scene: Scene, code: number, ...flags: string[]): Promise<void> {
  const run = await scene.submit(...flags);
  expect(run.json, shown(run)).toMatchObject({ exit_code: code });
  expect(existsSync(scene.out)).toBe(false);
  await scene.expectRerun(code);
  expect(existsSync(scene.out)).toBe(false);
  await scene.expectInvariants(1);
}

/** Expects exit 0 and the same audio from the first run and the rerun, and no request from the rerun. */
async function expectSpoken(scene: Scene, expected = audio): Promise<void> {
  const run = await scene.submit('--key', 'boat');
  expect(run.code, shown(run)).toBe(0);
  expect(readFileSync(scene.out).equals(expected)).toBe(true);
  await scene.expectRerun(0);
  await scene.expectInvariants(1);
}

describe.concurrent('frames split at any byte', () => {
  // test/speech/frames.test.ts tests other separators.
  it('produce an identical file if each byte arrives alone', async ({ open }) => {
    const short = audio.subarray(0, 900);
    const scene = await open('tts', { video: short });
    scene.gateway.script.submit.push(async ({ gateway, response, socket }) => {
      gateway.speak(response, [], false);
      socket.setNoDelay(true);
      const events = framesOf(short).map((each) => `event: 352\r\ndata:${each}\r\n\r\n`);
      for (const byte of Buffer.from(events.join(''))) {
        response.write(Buffer.from([byte]));
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end();
    });
    await expectSpoken(scene, short);
  });
});

describe.concurrent('a stream without its end frame', () => {
  it('leads to exit 9 if the server ends the stream, the .part file is kept, and nothing is sent again', async ({
    open,
  }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(stream(audioFrames(audio)));
    await expectIncomplete(scene, 9);
    expect(readFileSync(`${scene.out}.part`).equals(audio)).toBe(true);
  });
});

describe.concurrent('an error frame', () => {
  const error = frame(55_000_000, null, { message: `internal, key ${canaryKey}` });
  it('leads to exit 5 if it follows audio, the .part file is kept, and nothing is sent again', async ({
    open,
  }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(stream([...audioFrames(audio).slice(0, 3), error, endFrame]));
    await expectIncomplete(scene, 5);
    expect(readFileSync(`${scene.out}.part`).equals(audio.subarray(0, 2100))).toBe(true);
  });
});

describe.concurrent('the end frame', () => {
  it('leads to exit 0 if a reset follows', async ({ open }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(({ gateway, response, socket }) => {
      gateway.speak(response, framesOf(audio).slice(0, -1), false);
      response.write(endFrame, () => socket.resetAndDestroy());
    });
    await expectSpoken(scene);
  });

  it('leads to exit 9 if no audio precedes it', async ({ open }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(stream([endFrame]));
    await expectIncomplete(scene, 9);
  });
});

describe.concurrent('invalid frames', () => {
  // test/speech/wire.test.ts tests other invalid frames, and test/speech/speak.test.ts tests a frame of 64 MiB.
  it('lead to exit 9', async ({ open }) => {
    const scene = await opened(open);
    const [first = '', ...others] = audioFrames(audio);
    scene.gateway.script.submit.push(stream([first, frame(0, 'QUJD*UJD'), ...others, endFrame]));
    await expectIncomplete(scene, 9);
  });
});

describe.concurrent('a failure before the stream begins', () => {
  it('leads to exit 7 if it is a reset before the response head, and the rerun sends nothing', async ({
    open,
  }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(({ gateway, socket }) => {
      gateway.create();
      socket.resetAndDestroy();
    });
    await expectIncomplete(scene, 7);
  });
});

describe.concurrent('a stalled stream', () => {
  it('leads to exit 9 at the timeout, and the .part file is kept', async ({ open }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(stream(audioFrames(audio).slice(0, 3), false));
    await expectIncomplete(scene, 9, '--timeout', '10s');
    expect(readFileSync(`${scene.out}.part`).equals(audio.subarray(0, 2100))).toBe(true);
  });
});

describe.concurrent('a reader of -o - that exits early', () => {
  it('ends the command with exit 9 or 141, without a crash or a message', async ({ open }) => {
    const scene = await opened(open);
    scene.gateway.script.submit.push(async ({ gateway, response, socket }) => {
      gateway.speak(response, [], false);
      const [piece = ''] = audioFrames(Buffer.alloc(64 * 1024, 'a'), 64 * 1024);
      for (let count = 0; count < 50 && !socket.destroyed; count += 1)
        await new Promise((resolve) => response.write(piece, resolve));
      response.end(endFrame);
    });
    const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));
    const script = '{ "$@"; echo "exit $?" >&2; } | head -c 1';
    const piped = await piping(scene, script, [bin, 'tts', 'A paper boat.', '-o', '-', '-q']);
    expect(piped.stdout).toBe('a');
    expect(piped.stderr).toMatch(/exit (9|141)\n$/);
    expect(piped.stderr).not.toMatch(/EPIPE|^\s+at /m);
    await scene.expectInvariants(1);
  });
});

/** Runs a command in a shell pipeline while this process serves the gateway. */
async function piping(
  scene: Scene,
  script: string,
  args: string[],
): Promise<{ stdout: string; stderr: string }> {
  const child = spawn('sh', ['-c', script, 'sh', process.execPath, ...args], {
    env: scene.user.env,
    cwd: scene.user.cwd,
  });
  const [stdout, stderr] = await Promise.all([child.stdout, child.stderr].map(textOf));
  return { stdout: stdout ?? '', stderr: stderr ?? '' };
}

async function textOf(readable: NodeJS.ReadableStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of readable) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

describe.concurrent('kill -9 during a stream', () => {
  it('leaves no output, and the rerun exits with 9 and sends nothing', async ({ open }) => {
    const scene = await opened(open);
    const part = `${scene.out}.part`;
    const running = scene.start(scene.command());
    scene.gateway.script.submit.push(async ({ gateway, response }) => {
      gateway.speak(response, audioFrames(audio).slice(0, 3), false);
      await until(() => existsSync(part) && readFileSync(part).length > 0);
      running.child.kill('SIGKILL');
    });
    expect((await running.result).code).toBe(137);
    await scene.expectRerun(9);
    expect(existsSync(scene.out)).toBe(false);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('speech over a failing connection', () => {
  it('leads to exit 6 if the connection is always refused, and the rerun exits with 0', async ({ open }) => {
    const scene = await opened(open, { host: '127.0.0.3' });
    await scene.gateway.main.stop();
    const run = await scene.submit('--retries', '1');
    expect(run.json).toMatchObject({ exit_code: 6, error: { code: 'unreachable', retry: 'safe' } });
    await scene.gateway.main.start();
    const again = await scene.again();
    expect(again.code, shown(again)).toBe(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('refused speech', () => {
  it('is retried until exit 0, and not before Retry-After has passed', async ({ open }) => {
    const scene = await opened(open);
    const refusal = {
      status: 429,
      headers: { 'retry-after': '1' },
      body: { error: { message: 'slow down' } },
    };
    scene.gateway.script.submit.push(refusal, refusal);
    await expectSpoken(scene);
    const times = scene.gateway.submissions.map(({ at }) => at);
    expect(times).toHaveLength(3);
    for (const [index, at] of times.slice(1).entries())
      expect(at - (times[index] ?? 0)).toBeGreaterThan(1000 / hurry - 2);
  });

  it.for([
    [401, 3, 'no'],
    [404, 4, 'base URL'],
  ] as const)(
    'is reported by the exit code: HTTP %i leads to exit %i',
    async ([status, code, named], { open }) => {
      const scene = await opened(open);
      const message = status === 404 ? 'Invalid URL (POST /v1/api/v3/tts)' : 'no';
      scene.gateway.always.submit = { status, body: { error: { message } } };
      const json = await scene.here(scene.command());
      expect(json, JSON.stringify(json)).toMatchObject({ exit_code: code, error: { charged: 'no' } });
      expect(json.error.message).toContain(named);
      expect((await scene.again()).code).toBe(code);
      await scene.expectInvariants(0);
    },
  );

  it('is not sent to another host after a redirect', async ({ open }) => {
    const scene = await opened(open);
    const stranger = await scene.stranger((_, response) => response.end('{}'));
    scene.gateway.always.submit = { status: 307, headers: { location: `${stranger.origin}/elsewhere` } };
    const json = await scene.here(scene.command());
    expect(json.exit_code).toBe(4);
    expect(json.error.message).toContain(stranger.origin);
    expect(stranger.connections).toHaveLength(0);
    await scene.expectInvariants(0);
  });
});
