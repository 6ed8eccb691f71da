import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { installedForm, ownCommand, readPackageFile, requireNode } from '../src/installation.ts';
import { version } from '../src/version.ts';

describe('the runtime', () => {
  const node = { node: '24.0.0', v8: '13.6' } as NodeJS.ProcessVersions;

  it('is Node', () => expect(() => requireNode(node)).not.toThrow());

  it.each([
    ['bun', { ...node, bun: '1.4.5' }],
    ['deno', { ...node, deno: '2.9.6' }],
    ['electron', { ...node, electron: '40.0.0' }],
    ['an unknown runtime', { node: '24.0.0' }],
  ])('is refused if it is %s', (name, versions) =>
    expect(() => requireNode(versions as NodeJS.ProcessVersions)).toThrow(
      `mgw runs on Node only, and this is ${name}.`,
    ),
  );
});

describe('the package', () => {
  it('is of npm unless an executable carries it', () => expect(installedForm()).toBe('npm'));

  it('has its documentation', async () => expect(await readPackageFile('docs/output.md')).toMatch(/^# /));

  it('starts itself by the words of its own command', () => {
    const [file = '', ...words] = ownCommand();
    const run = spawnSync(file, [...words, '--version'], { encoding: 'utf8' });
    expect(run.stdout).toBe(`${version}\n`);
  });
});
