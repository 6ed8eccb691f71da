import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { findKey } from '../faults/invariants.ts';
import { allCommands, loadAll } from '../../src/cli/command-tree.ts';
import { createProgram } from '../../src/cli/program.ts';
import { canaryKey, newUser, type Running } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { hurried, runHere } from '../support/one-process.ts';
import { commandsIn, filesBelow } from './commands.ts';
import { reflections, startMirror, type Reflection } from './mirror.ts';

/** Returns every spelling in which gateways are known to log a key, and some other spellings. */
function spellingsOf(key: string): string {
  const each = (form: (hex: string) => string): string =>
    [...Buffer.from(key)].map((byte) => form(byte.toString(16).padStart(2, '0'))).join('');
  return [
    `you sent ${key}`,
    `Bearer ${key}`,
    key.replace(/^sk-/, ''),
    Buffer.from(key).toString('base64'),
    Buffer.from(`Bearer ${key}`).toString('base64url'),
    Buffer.from(`:${key}`).toString('base64'),
    each((hex) => hex),
    each((hex) => `%${hex}`),
    each((hex) => `\\u00${hex}`),
  ].join(' ; ');
}

const days: [Reflection, number | undefined][] = [
  ...[200, 401, 500].map((status): [Reflection, number] => ['refusals', status]),
  ...reflections.slice(1).map((reflection): [Reflection, undefined] => [reflection, undefined]),
];

describe('a gateway that reflects the key', () => {
  it.each(days)(
    'causes no leak of the key in its %s (status: %s) into any output, record or request to a different host',
    async (reflection, status) => {
      const mirror = await startMirror({ reflection, status, word: (key) => key, text: spellingsOf });
      const user = newUser(mirror.url);
      const flagSets = [['-v'], ['--json']];
      for (const [index, command] of commandsIn(user.cwd, reflection).entries()) {
        // Each command runs with -v in some cases and with --json in the others.
        const flags = flagSets[(index + (status ?? 0) / 100) % 2 < 1 ? 0 : 1] ?? [];
        const { code, stdout, stderr } = await runHere([...command, ...flags], user.env, '', hurried(1000));
        const name = `${command.join(' ')} ${flags.join(' ')}`;
        expect(findKey(stdout, canaryKey), `stdout of ${name}`).toBeUndefined();
        expect(findKey(stderr, canaryKey), `stderr of ${name}`).toBeUndefined();
        expect(code, `a bug in ${name}: ${stderr}`).not.toBe(1);
      }
      for (const { path, text } of filesBelow(user.cwd))
        expect(findKey(`${path}\n${text}`, canaryKey), path).toBeUndefined();
      expect(findKey(mirror.stranger.join('\n'), canaryKey), 'a foreign request').toBeUndefined();
      await mirror.close();
    },
  );
});

it('no flag accepts a secret', async () => {
  const { root } = createProgram([], () => Promise.resolve());
  await loadAll(root);
  const flags = allCommands(root).flatMap(({ options }) => options.map(({ long }) => long ?? ''));
  expect(flags).toContain('--key');
  // These three flags concern job keys.
  const secret = /key|token|secret|password|credential|bearer/;
  expect([...new Set(flags.filter((flag) => !flag.match(/^--(keep-)?keys?$/) && secret.test(flag)))]).toEqual(
    [],
  );
});

/** Returns the command lines of a process and of all processes that it started. */
function commandLines(pid: number): string {
  const children = readdirSync(`/proc/${pid}/task`).flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean),
  );
  const own = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  return [own, ...children.map((child) => commandLines(Number(child)))].join('\n');
}

describe.skipIf(process.platform !== 'linux')('the process list', () => {
  async function expectHidden(
    { child, result }: Running,
    isThere: Promise<unknown>,
    end: NodeJS.Signals,
  ): Promise<void> {
    await isThere;
    const pid = child.pid ?? 0;
    expect(commandLines(pid)).toContain('mgw');
    expect(findKey(commandLines(pid), canaryKey)).toBeUndefined();
    child.kill(end);
    await result;
  }

  it('does not contain the key during a submission', async () => {
    const gateway = await FaultGateway.start({ protocol: 'c' });
    const requested = new Promise((resolve) => gateway.script.submit.push(resolve));
    const submit = ['video', 'c', 'submit', 'x', '--model', 'vendor-h3-mini'];
    await expectHidden(newUser(gateway.url).start(submit), requested, 'SIGKILL');
    await gateway.close();
  });

  it('does not contain the key while sandbox exec runs a script', async () => {
    const env = { MGW_API_KEY: canaryKey, MGW_BASE_URL: 'https://gateway.example' };
    // The script is not a shell, because a shell may replace itself with the program that it runs.
    const script = [process.execPath, '-e', 'console.log("ready"); setTimeout(() => {}, 30_000)'];
    const running = newUser(undefined, env).start(['sandbox', 'exec', '--', ...script]);
    const ready = new Promise((resolve) => running.child.stdout?.once('data', resolve));
    await expectHidden(running, ready, 'SIGTERM');
  });
});
