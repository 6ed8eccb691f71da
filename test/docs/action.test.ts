import { spawnSync } from 'node:child_process';
import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type * as Service from '@actions/languageservice';
import { rolldown } from 'rolldown';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { TextDocument } from 'vscode-languageserver-textdocument';
import { version } from '../../src/installation.ts';
import { writeRelease } from '../support/local-release.ts';
import { freshFolder } from '../support/servers.ts';

const read = (name: string): string =>
  readFileSync(fileURLToPath(new URL(`../../${name}`, import.meta.url)), 'utf8');
const script = fileURLToPath(new URL('../../action/install.sh', import.meta.url));
const workflows = readdirSync(new URL('../../docs', import.meta.url)).flatMap((name) =>
  Array.from((name.endsWith('.md') ? read(`docs/${name}`) : '').matchAll(/```yaml\n(name: (\w+)\n[^]*?)```/g), ([, text = '', own = '']) => ({ name: own, text })),
);

let release: string;
let file: string;
let runner: string;

beforeEach(() => {
  release = freshFolder();
  runner = freshFolder();
  file = writeRelease(release);
});

function install(env: NodeJS.ProcessEnv = {}) {
  const files = Object.fromEntries(['ENV', 'OUTPUT', 'PATH'].map((name) => [`GITHUB_${name}`, join(runner, name)]));
  for (const file of Object.values(files)) writeFileSync(file, '');
  const { status, stdout } = spawnSync('bash', [script], {
    encoding: 'utf8',
    env: {
      ...{ HOME: runner, PATH: process.env['PATH'], RUNNER_TEMP: runner, RUNNER_OS: 'Linux', ...files },
      ...{ RUNNER_ARCH: process.arch === 'arm64' ? 'ARM64' : 'X64', INPUT_VERSION: version, INPUT_RELEASE: release },
      ...env,
    },
  });
  return { status, stdout, path: readFileSync(join(runner, 'PATH'), 'utf8').trim() };
}

describe('the action', () => {
  it('installs a release from a path, a relative path or a file:// URL', () => {
    for (const name of [release, relative('.', release), `file://${release}`]) {
      const { status, stdout, path } = install({ INPUT_RELEASE: name });
      expect(status, stdout).toBe(0);
      expect(readFileSync(join(path, 'mgw'), 'utf8')).toContain('bin/mgw.js');
      expect(readFileSync(join(runner, 'OUTPUT'), 'utf8')).toBe(`version=${version}\n`);
      rmSync(path, { recursive: true });
    }
  });

  it('refuses a tampered release file, and installs nothing', () => {
    appendFileSync(file, '\n');
    const { status, stdout, path } = install();
    expect(status).toBe(1);
    expect(stdout).toMatch(/^::error title=mgw::mgw-\S+ is not the file of the release: .* Nothing was installed\.$/m);
    expect(path).toBe('');
  });

  it.each([
    ['a file that SHA256SUMS does not list', () => writeFileSync(join(release, 'SHA256SUMS'), ''), /does not list/],
    ['a release without the file', () => rmSync(file), /Could not get mgw-/],
    ['a release without SHA256SUMS', () => rmSync(join(release, 'SHA256SUMS')), /Could not get SHA256SUMS/],
  ])('refuses %s', (_, spoil, message) => {
    spoil();
    const { status, stdout, path } = install();
    expect({ status, path }).toEqual({ status: 1, path: '' });
    expect(stdout).toMatch(message);
  });

  it.each([
    ['INPUT_VERSION', 'latest', /"latest" is not a version/],
    ['INPUT_VERSION', '9.9.9', /does not list mgw-9\.9\.9-linux/],
    ['INPUT_RELEASE', 'http://releases.example.com/mgw', /Allowed are a path, a file:/],
    ['INPUT_CACHE_STATE', 'yes', /Allowed are restore and save/],
  ])('refuses the input %s=%s', (name, value, message) => {
    const { status, stdout } = install({ [name]: value });
    expect(status).toBe(1);
    expect(stdout).toMatch(message);
  });

  it('masks the API key first, uses the version of its own tag, and names the cache after the workflow, without commas', () => {
    const { status, stdout } = install({
      ...{ INPUT_VERSION: '', ACTION_REF: `v${version}`, MGW_API_KEY: 'sk-50%off' },
      ...{ INPUT_CACHE_STATE: 'restore', GITHUB_WORKFLOW: 'clips, nightly,' },
    });
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/^::add-mask::sk-50%25off\n/);
    expect(readFileSync(join(runner, 'ENV'), 'utf8')).toContain('\nMGW_WORKFLOW=clips_ nightly_\n');
    expect(readFileSync(join(runner, 'OUTPUT'), 'utf8')).toContain('\nworkflow=clips_ nightly_\n');
  });
});

describe('GitHub', () => {
  let validate: typeof Service.validate;

  // Bundles GitHub's parser, because the parser imports JSON in a way that Node 20 does not support.
  beforeAll(async () => {
    const file = join(freshFolder(), 'validate.mjs');
    const build = await rolldown({ input: '@actions/languageservice', platform: 'node' });
    await build.write({ file, codeSplitting: false });
    ({ validate } = (await import(file)) as typeof Service);
  });

  // GitHub's parser caches a file by its path, so each version needs a different path.
  const messages = async (name: string, text: string): Promise<unknown[]> =>
    (await validate(TextDocument.create(`file:///${name}`, 'yaml', 1, text))).map(({ message }) => message);

  it('accepts action.yml', async () => {
    const text = read('action/action.yml');
    expect(await messages('action/action.yml', text)).toEqual([]);
    const broken = text.replace('{ inputs.release', '{ secrets.RELEASE');
    expect(await messages('broken/action.yml', broken)).toHaveLength(1);
  });

  it.each(workflows)("accepts the documentation's workflow $name", async ({ name, text }) => {

    expect(await messages(`.github/workflows/${name}.yml`, text)).toEqual([]);
    expect(await messages(`.github/workflows/broken-${name}.yml`, text.replace('runs-on', 'run-on'))).not.toEqual([]);
    expect(text.match(/mgw\/action@\S+/g)).toContain(`mgw/action@v${version}`);
  });
});
