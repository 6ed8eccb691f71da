import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { launch, type Launched } from './launch.ts';

function sh(script: string, env: NodeJS.ProcessEnv = {}): Launched {
  return launch('sh', ['-c', script], { cwd: tmpdir(), env: { PATH: process.env['PATH'], ...env } });
}

it('a launched process has its own folder, environment and standard streams, even if several start at once', async () => {
  const each = async (name: string): Promise<unknown[]> => {
    const child = sh('pwd; cat; echo "$NAME" >&2; exit 7', { NAME: name });
    const ended = once(child, 'close');
    child.stdin.end(`to ${name}\n`);
    const output = await Promise.all([text(child.stdout), text(child.stderr)]);
    return [...output, ...((await ended) as unknown[]), child.exitCode];
  };
  const names = ['one', 'two', 'three', 'four'];
  expect(await Promise.all(names.map(each))).toEqual(
    names.map((name) => [`${tmpdir()}\nto ${name}\n`, `${name}\n`, 7, null, 7]),
  );
});

it('a launched process can be killed, even before its pid is known', async () => {
  const child = sh('exec sleep 100');
  expect(child.kill('SIGKILL')).toBe(true);
  expect(await once(child, 'close')).toEqual([null, 'SIGKILL']);
  expect([child.signalCode, child.kill()]).toEqual(['SIGKILL', false]);
});

it('a launched process receives the end of its input, and EPIPE if the reader of its output closes', async () => {
  const child = sh(
    'trap "" PIPE; cat; echo more; head -c 10000000 /dev/zero 2> /dev/null || echo closed >&2',
  );
  child.stdin.end();
  child.stdout.once('data', () => child.stdout.destroy());
  expect(await text(child.stderr)).toBe('closed\n');
});

it('the launcher reports an error if the program is missing', async () => {
  const child = launch('no-such-program', [], { cwd: tmpdir(), env: {} });
  await expect(once(child, 'close')).rejects.toThrow('ENOENT');
});

it('a launched process ends when the process that runs the test ends', async () => {
  const path = join(tmpdir(), `mgw-launcher-test-${process.pid}`);
  const launcher = fork('test/support/launcher.mjs', [path], { execArgv: [] });
  await once(launcher, 'message');
  const streams = [1, 2, 3].map(() => connect(path).resume());
  launcher.send({ id: 1, command: 'sleep', args: ['1000'], options: { cwd: tmpdir() } });
  await once(launcher, 'message');
  launcher.disconnect();
  await Promise.all(streams.map((stream) => once(stream, 'close')));
});
