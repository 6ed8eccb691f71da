import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const repository = fileURLToPath(new URL('..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as {
  version: string;
  files: string[];
  dependencies?: object;
};

let folder: string;
/** A clone as it is packed, and the empty folder that the tarball is installed into. */
let clone: string;
let home: string;
let packed: string[];

// As on a machine without a network: no registry is asked, and nothing of this user's settings counts.
const offline = ['--offline', '--ignore-scripts', '--no-audit', '--no-fund'];

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mgw-package-'));
  clone = join(folder, 'clone');
  home = join(folder, 'home');
  for (const made of [clone, home, join(clone, 'dist')]) mkdirSync(made);
  const names = ['package.json', 'README.md', 'LICENSE', 'CHANGELOG.md', 'bin', 'docs', 'src'];
  for (const name of [...names, 'tsconfig.json', 'rolldown.config.mjs', 'rolldown.gallery.mjs', 'rolldown.licences.mjs'])
    cpSync(join(repository, name), join(clone, name), { recursive: true });
  symlinkSync(join(repository, 'node_modules'), join(clone, 'node_modules'));
  writeFileSync(join(clone, 'dist', 'left-from-another-build.cjs'), '');
  writeFileSync(join(home, 'package.json'), '{"private":true}');
  const report = npm(['pack', '--json', '--pack-destination', folder], clone);
  const [tarball] = JSON.parse(report.slice(report.indexOf('[\n'))) as [
    { filename: string; files: { path: string }[] },
  ];
  packed = tarball.files.map(({ path }) => path);
  npm(['install', ...offline, join(folder, tarball.filename)], home);
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function npm(args: string[], cwd: string): string {
  const env = { PATH: process.env['PATH'], HOME: folder, npm_config_cache: join(folder, 'cache') };
  return execFileSync('npm', args, { cwd, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

function mgw(
  args: string[],
  nodeArgs: string[] = [],
): { status: number | null; stdout: string; stderr: string } {
  const bin = join(home, 'node_modules', 'mgw', 'bin', 'mgw.js');
  const env = { PATH: process.env['PATH'], HOME: home, TRACE_FILE: join(folder, 'trace') };
  return spawnSync(process.execPath, [...nodeArgs, bin, ...args], { cwd: home, env, encoding: 'utf8' });
}

describe('the tarball', () => {
  it('holds the program, its documents and licences, and nothing else', () => {
    const expected = [
      /^package\.json$/,
      /^README\.md$/,
      /^LICENSE$/,
      /^CHANGELOG\.md$/,
      /^bin\/(mgw\.js|package\.json)$/,
    ];
    const patterns = [
      ...expected,
      /^docs\/[\w/-]+\.md$/,
      /^dist\/[\w-]+\.cjs$/,
      /^dist\/THIRD-PARTY-LICENSES\.txt$/,
    ];
    expect(packed.filter((path) => !patterns.some((pattern) => pattern.test(path)))).toEqual([]);
    for (const pattern of patterns) expect(packed.filter((path) => pattern.test(path))).not.toEqual([]);
    expect(packed).not.toContain('dist/left-from-another-build.cjs');
  });

  it('needs no other package', () => {
    expect(manifest.dependencies).toBeUndefined();
    expect(existsSync(join(home, 'node_modules', 'commander'))).toBe(false);
  });

  it('passes on the licence of every package that is bundled', () => {
    const text = readFileSync(join(home, 'node_modules/mgw/dist/THIRD-PARTY-LICENSES.txt'), 'utf8');
    for (const name of ['commander', 'conf', 'ora', 'zod', 'tldts', 'undici'])
      expect(text).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\((MIT|ISC|BSD-3-Clause)\\)$`, 'm'));
    expect(text).toContain('THE SOFTWARE IS PROVIDED "AS IS"');
  });
});

describe('installed from it, mgw', () => {
  it('tells its version', () => {
    const shim = spawnSync(join(home, 'node_modules', '.bin', 'mgw'), ['--version'], { encoding: 'utf8' });
    expect(shim.stdout).toBe(`${manifest.version}\n`);
  });

  it('makes a video on the sandbox', () => {
    expect(mgw(['config', 'set', 'sandbox.pace', '50ms']).status).toBe(0);
    const ran = mgw([
      '--sandbox',
      'video',
      'c',
      'submit',
      'a boat',
      '--model',
      'vendor-h3-mini',
      '-o',
      'boat.mp4',
    ]);
    expect(ran).toMatchObject({ status: 0, stdout: `${join(home, 'boat.mp4')}\n` });
    expect(readFileSync(join(home, 'boat.mp4')).toString('latin1', 4, 8)).toBe('ftyp');
  });
});

describe('a local command loads no network stack:', () => {
  const network = ['http', 'https', 'tls', 'http2', 'dns', '_http_client', 'internal/deps/undici/undici'];

  // All of Node's own modules that are loaded when the process ends.
  function loaded(args: string[]): string[] {
    const script = join(folder, 'trace.cjs');
    const trace = "require('fs').writeFileSync(process.env.TRACE_FILE, process.moduleLoadList.join('\\n'))";
    writeFileSync(script, `process.on('exit', () => ${trace});`);
    expect(mgw(args, ['--require', script]).status).toBe(0);
    const lines = readFileSync(join(folder, 'trace'), 'utf8').split('\n');
    return lines.map((line) => line.replace(/^NativeModule /, ''));
  }

  it.each([
    ['--version'],
    ['--help'],
    ['help', 'exit-codes'],
    ['jobs', 'ls'],
    ['--sandbox', 'jobs', 'ls'],
    ['--sandbox', 'jobs', 'show', '@last'],
    ['config', 'list'],
    ['completion', 'bash'],
    ['sandbox', 'bill'],
  ])('mgw %s %s %s', (...args) => {
    const modules = loaded(args);
    expect(modules).toContain('fs');
    expect(network.filter((name) => modules.includes(name))).toEqual([]);
  });

  it('which a command that asks the gateway does load', () => {
    expect(loaded(['--sandbox', 'models'])).toContain('_http_client');
  });
});
