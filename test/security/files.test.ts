import { execFileSync, spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { canaryKey, type User } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { userHere } from '../support/one-process.ts';
import { filesBelow } from './commands.ts';

const submit = [
  'video',
  'c',
  'submit',
  '--model',
  'vendor-h3-mini',
  '--prompt',
  'x',
  '--poll-interval',
  '20ms',
];
const bin = fileURLToPath(new URL('../../bin/mgw.js', import.meta.url));

let gateway: FaultGateway;
let user: User;
beforeEach(async () => {
  gateway = await FaultGateway.start({ protocol: 'c' });
  user = userHere(gateway.url);
});
afterEach(() => gateway.close());

/** Runs a command with umask 000, which makes new files accessible to every user. */
function underOpenUmask(args: string[], stdin = ''): Promise<number | null> {
  const shell = ['-c', 'umask 000; exec "$@"', 'sh', process.execPath, bin, ...args];
  const child = spawn('sh', shell, { cwd: user.cwd, env: user.env, stdio: ['pipe', 'ignore', 'ignore'] });
  child.stdin.end(stdin);
  return new Promise((resolve) => child.once('close', resolve));
}

describe('a file or folder', () => {
  it('is readable only by its owner, even with umask 000, if it is in the state or config folder', async () => {
    delete user.env['MGW_API_KEY'];
    const login = ['auth', 'login', '--base-url', gateway.url];
    expect(await underOpenUmask(login, canaryKey)).toBe(0);
    expect(await underOpenUmask([...submit, '--key', 'k', '-o', 'a.mp4'])).toBe(0);
    expect(await underOpenUmask(['--sandbox', 'models'])).toBe(0);
    const own = ['state', 'config'].map((name) => join(user.cwd, name));
    const kept = own.flatMap((path) => [{ path, mode: lstatSync(path).mode }, ...filesBelow(path)]);
    expect(kept.length).toBeGreaterThan(12);
    for (const { path, mode } of kept)
      expect((mode & 0o777).toString(8), path).toBe((mode & 0o170000) === 0o040000 ? '700' : '600');
  });

  it.runIf(process.geteuid?.() === 0)(
    'is not used for state or config if it belongs to another user',
    async () => {
      const state = join(user.cwd, 'foreign');
      for (const inner of ['.', 'jobs']) {
        mkdirSync(join(state, inner), { recursive: true, mode: 0o755 });
        chownSync(join(state, inner), 4242, 4242);
        const run = await user.run(submit, { env: { MGW_STATE_DIR: state } });
        expect([run.code, run.stderr]).toEqual([10, expect.stringContaining('belongs to user 4242')]);
        chownSync(join(state, inner), 0, 0);
      }
      const config = join(user.cwd, 'shared');
      mkdirSync(config);
      chmodSync(config, 0o1777);
      writeFileSync(
        join(config, 'config.json'),
        JSON.stringify({ profiles: { default: { base_url: gateway.url } } }),
      );
      chownSync(join(config, 'config.json'), 4242, 4242);
      const run = await user.run(submit, { env: { MGW_CONFIG_DIR: config, MGW_BASE_URL: '' } });
      expect([run.code, run.stderr]).toEqual([2, expect.stringContaining('belongs to user 4242')]);
      expect(gateway.seen).toHaveLength(0);
    },
  );

  it('is not used for state if every user can write to it', async () => {
    const state = join(user.cwd, 'open');
    mkdirSync(state);
    chmodSync(state, 0o1777);
    const run = await user.run(submit, { env: { MGW_STATE_DIR: state } });
    expect([run.code, run.stderr]).toEqual([10, expect.stringContaining('can be written by every user')]);
    expect(run.stderr).toContain(`chmod 700 ${state}\n`);
    expect(gateway.seen).toHaveLength(0);
  });

  it('is refused if it is a link, a FIFO or an ordinary file in place of a state folder', async () => {
    const elsewhere = join(user.cwd, 'elsewhere');
    mkdirSync(elsewhere);
    for (const [index, put] of [
      (path: string) => symlinkSync(join(elsewhere, 'nothing'), path),
      (path: string) => execFileSync('mkfifo', [path]),
      (path: string) => writeFileSync(path, ''),
    ].entries()) {
      const state = join(user.cwd, `state-${index}`);
      mkdirSync(state, { mode: 0o700 });
      put(join(state, 'jobs'));
      const run = await user.run(submit, { env: { MGW_STATE_DIR: state } });
      expect([index, run.code], run.stderr).toEqual([index, 10]);
    }
    expect(gateway.submissions).toHaveLength(0);
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  it('is refused before payment, and remains unchanged, if it is a link or a FIFO in place of the output', async () => {
    const [output, other] = [join(user.cwd, 'out.mp4'), join(user.cwd, 'other')];
    writeFileSync(other, 'precious');
    for (const put of [
      () => symlinkSync(other, output),
      () => symlinkSync('nothing', output),
      () => execFileSync('mkfifo', [output]),
    ]) {
      put();
      const before = lstatSync(output);
      expect((await user.run([...submit, '-o', 'out.mp4'])).code).toBe(10);
      expect(lstatSync(output).ino).toBe(before.ino);
      rmSync(output);
    }
    expect(readFileSync(other, 'utf8')).toBe('precious');
    expect(gateway.submissions).toHaveLength(0);
  });

  it('is not written to if it is a link at the temporary name of the output', async () => {
    const other = join(user.cwd, 'other');
    writeFileSync(other, 'precious');
    for (const name of ['out.mp4.part', 'out.mp4.part.json']) symlinkSync(other, join(user.cwd, name));
    const run = await user.run([...submit, '-o', 'out.mp4']);
    expect(readFileSync(other, 'utf8')).toBe('precious');
    if (run.code === 0) expect(readFileSync(join(user.cwd, 'out.mp4'))).toEqual(gateway.served.content);
    else expect(run.code).toBe(10);
  });

  it('does not block mgw if it is a FIFO at a temporary name of the output', async () => {
    for (const name of ['out.mp4.part', 'out.mp4.part.json']) execFileSync('mkfifo', [join(user.cwd, name)]);
    const command = [...submit, '-o', 'out.mp4', '--key', 'k'];
    expect([(await user.run(command)).code, (await user.run(command)).code]).toEqual([0, 0]);
    expect(gateway.submissions).toHaveLength(1);
  });
});
