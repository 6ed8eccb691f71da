import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { installMethod, selfCommand, readPackageFile, requireNode } from '../src/installation.ts';
import { version } from '../src/installation.ts';
import { freshFolder } from './support/servers.ts';

describe('the JavaScript runtime', () => {
  const node = { node: '24.0.0', v8: '13.6' } as NodeJS.ProcessVersions;

  it('is accepted if it is Node', () => expect(() => requireNode(node)).not.toThrow());

  it.each([
    ['bun', { ...node, bun: '1.4.5' }],
    ['deno', { ...node, deno: '2.9.6' }],
    ['electron', { ...node, electron: '40.0.0' }],
    ['an unknown runtime', { node: '24.0.0' }],
  ])('is refused if it is %s', (name, versions) =>
    expect(() => requireNode(versions as NodeJS.ProcessVersions)).toThrow(
      `mgw runs only on Node, but this is ${name}.`,
    ),
  );
});

describe('an unsupported runtime', () => {
  it.each([['bun'], ['deno', 'run', '--allow-all']])(
    'is refused before anything is sent: %s',
    (name, ...words) => {
      const script = fileURLToPath(new URL('../bin/mgw.js', import.meta.url));
      const submit = ['--sandbox', 'video', 'submit', 'a boat', '--model', 'vendor-h3-mini', '--json'];
      const home = freshFolder();
      const env = { PATH: process.env['PATH'], HOME: home };
      const run = spawnSync(name, [...words, script, ...submit], { encoding: 'utf8', env });
      if (run.error !== undefined) return;
      expect(run.status, run.stderr).toBe(2);
      expect(JSON.parse(run.stdout)).toMatchObject({ error: { code: 'config', charged: 'no' } });
      expect(existsSync(join(home, '.local'))).toBe(false);
    },
  );
});

describe('the package', () => {
  it('is identified as the npm package unless it is part of an executable', () =>
    expect(installMethod()).toBe('npm'));

  it('contains its documentation', async () =>
    expect(await readPackageFile('docs/output.md')).toMatch(/^# /));

  it('provides the command line that starts the same mgw again', () => {
    const [file = '', ...words] = selfCommand();
    const run = spawnSync(file, [...words, '--version'], { encoding: 'utf8' });
    expect(run.stdout).toBe(`${version}\n`);
  });

  it('finds the running Node binary even if Node knows only the name with which it was started', () => {
    const { execPath } = process;
    onTestFinished(() => {
      process.execPath = execPath;
      vi.unstubAllEnvs();
    });
    process.execPath = basename(execPath);
    vi.stubEnv('PATH', `/nowhere:${dirname(execPath)}`);
    expect(selfCommand()[0]).toBe(execPath);
  });
});
