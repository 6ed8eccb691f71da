import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runHere } from './support/one-process.ts';

interface Loading {
  loader: (
    folder: string,
    cache: string | undefined,
    use: string,
    asset?: (name: string) => Buffer,
  ) => { load: (name: string) => Answer; keep: () => void };
  openCache: (version: string, env: Record<string, string>) => string | undefined;
}
interface Answer {
  answer: () => number;
}
const { loader, openCache } = createRequire(import.meta.url)(resolve('bin/load.js')) as Loading;

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'mgw-start-'));
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

describe('mgw', () => {
  // Returns the names of the loaded build files, without their hashes.
  function loadedBy(words: string[], exitCode = 0): string[] {
    const list = join(home, 'list');
    const script = join(home, 'trace.cjs');
    writeFileSync(
      script,
      `const fs = require('node:fs'); const { readFileSync } = fs; const read = [];
       fs.readFileSync = (path, ...rest) => { read.push(String(path)); return readFileSync(path, ...rest); };
       process.on('exit', () => fs.writeFileSync(${JSON.stringify(list)}, read.join('\\n')));`,
    );
    const env = { PATH: process.env['PATH'], HOME: home, MGW_API_KEY: 'sk-0123456789' };
    const run = spawnSync(process.execPath, ['--require', script, 'bin/mgw.js', ...words], {
      env,
      encoding: 'utf8',
    });
    expect(run.status, run.stderr).toBe(exitCode);
    const built = readFileSync(list, 'utf8').matchAll(/\/dist\/(.+?)(?:-[\w-]{8})?\.cjs$/gm);
    return Array.from(built, ([, name = '']) => name);
  }

  it.each(['--version', '--help'])('answers %s without loading any module of its build', (flag) =>
    expect(loadedBy([flag])).toEqual([]),
  );

  it('names the Node version that it needs if it runs on an older one', () => {
    const script = join(home, 'older.cjs');
    const versions = '{ ...process.versions, node: "20.17.0" }';
    writeFileSync(script, `Object.defineProperty(process, 'versions', { value: ${versions} });`);
    const run = spawnSync(process.execPath, ['--require', script, 'bin/mgw.js', 'jobs', 'ls'], {
      encoding: 'utf8',
    });
    expect([run.status, run.stderr]).toEqual([
      2,
      'mgw: mgw needs Node 20.18 or newer, but this is Node 20.17.0.\n  Nothing was sent. (exit 2)\n',
    ]);
  });

  it('prints the same help from the prebuilt page as from the program', async () => {
    const { stdout } = await runHere(['--no-color', '--help'], {});
    expect(readFileSync('dist/help.txt', 'utf8')).toBe(stdout);
  });

  it('prints help without loading the code of other commands', () => {
    expect(loadedBy(['--no-color', '--help'])).toEqual(['mgw', 'rolldown-runtime']);
    expect(loadedBy(['jobs', '--help'])).toEqual(['mgw', 'rolldown-runtime', 'jobs']);
  });

  // The chunks of undici, zod, conf with ajv, yaml, ora, the sandbox, the client, and the code that runs jobs.
  const heavy = ['undici', 'core', 'store', 'yaml', 'ora', 'server', 'gateway', 'job'];

  it('loads the ledger for the job list, but no network stack and no schema', () => {
    const loaded = loadedBy(['jobs', 'ls']);
    expect(loaded).toContain('ledger');
    expect(heavy.filter((name) => loaded.includes(name))).toEqual([]);
    expect(loaded.length).toBeLessThanOrEqual(10);
  });

  it('loads the client for the model list, but no schema, settings writer or protocol, and uses compiled code the second time', () => {
    const models = ['models', '--base-url', 'http://127.0.0.1:9', '--retries', '0'];
    const compiled = join(home, '.cache', 'mgw', 'compiled');
    const kept = (): string[] =>
      readdirSync(compiled, { recursive: true }).map(
        (name) => `${String(name)} ${statSync(join(compiled, String(name))).ino}`,
      );
    const loaded = loadedBy(models, 6);
    expect(heavy.filter((name) => loaded.includes(name)).sort()).toEqual(['gateway', 'undici']);
    const first = kept();
    expect(first.length).toBeGreaterThan(5);
    loadedBy(models, 6);
    expect(kept()).toEqual(first);
  });
});

describe('the compile cache', () => {
  let dist: string;
  let cache: string;
  beforeEach(() => {
    [dist, cache] = [join(home, 'dist'), join(home, 'cache')];
    for (const folder of [dist, cache]) mkdirSync(folder);
    write(42);
  });

  function write(value: number): void {
    writeFileSync(join(dist, 'main.cjs'), `exports.answer = () => require('./part.cjs').value;`);
    writeFileSync(join(dist, 'part.cjs'), `exports.value = ${value};`);
  }
  function run(): number {
    const { load, keep } = loader(dist, cache, 'any');
    const answer = load('main.cjs').answer();
    keep();
    return answer;
  }
  const kept = (): string[] =>
    readdirSync(cache).map((name) => `${name} ${statSync(join(cache, name)).mtimeMs}`);

  it('is written by the first start of mgw and used by the next', () => {
    expect(run()).toBe(42);
    const first = kept();
    expect(first).toHaveLength(2);
    expect(run()).toBe(42);
    expect(kept()).toEqual(first);
  });

  it('is not used for different source code of the same length', () => {
    run();
    write(43);
    expect(run()).toBe(43);
  });

  it.each([
    ['torn', (bytes: Buffer) => bytes.subarray(0, 100)],
    ['empty', (bytes: Buffer) => bytes.subarray(0, 0)],
    ['changed', (bytes: Buffer) => bytes.fill(7, 60, 80)],
  ])('is created again if it is %s', (_, spoil) => {
    run();
    const paths = readdirSync(cache).map((name) => join(cache, name));
    const spoiled = paths.map((path) => spoil(readFileSync(path)));
    for (const [index, path] of paths.entries()) writeFileSync(path, spoiled[index] ?? '');
    expect(run()).toBe(42);
    for (const [index, path] of paths.entries()) expect(readFileSync(path)).not.toEqual(spoiled[index]);
    expect(run()).toBe(42);
  });

  it('is built into an executable, so starting the executable writes no cache', () => {
    const script =
      'const [load, ...folders] = process.argv.slice(1); for (const folder of folders) for (const name of ["main", "part"]) require(load).compile(`dist/${name}.cjs`, folder);';
    const carried = ['compiled', 'again'].map((name) => join(home, name));
    for (const folder of carried) {
      mkdirSync(folder);
      const words = ['--predictable', '-e', script, resolve('bin/load.js'), folder];
      expect(spawnSync(process.execPath, words, { cwd: home, encoding: 'utf8' }).stderr).toBe('');
    }
    const [first, again] = carried.map((folder) =>
      readdirSync(folder).map((name) => [name, readFileSync(join(folder, name)).toString('base64')]),
    );
    expect(first).toHaveLength(2);
    expect(again).toEqual(first);
    const asset = (name: string): Buffer => readFileSync(join(home, name));
    const start = (): number => {
      const { load, keep } = loader('dist', cache, 'any', asset);
      const answer = load('main.cjs').answer();
      keep();
      return answer;
    };
    expect(start()).toBe(42);
    expect(kept()).toEqual([]);
    write(43);
    expect(start()).toBe(43);
    expect(kept()).toHaveLength(1);
  });

  it('is not used if it cannot be written', () => {
    rmSync(cache, { recursive: true });
    expect(run()).toBe(42);
  });
});

describe("the compile cache's folder", () => {
  it('is separate for each user and version', () => {
    const folder = openCache('1.0.0', { HOME: home });
    expect(folder).toBe(join(home, '.cache', 'mgw', 'compiled', '1.0.0'));
    expect(statSync(folder ?? '').mode & 0o777).toBe(0o700);
    openCache('1.1.0', { HOME: home });
    expect(readdirSync(join(home, '.cache', 'mgw', 'compiled'))).toEqual(['1.1.0']);
  });

  it('is below XDG_CACHE_HOME', () => {
    expect(openCache('1.0.0', { HOME: '/nowhere', XDG_CACHE_HOME: home })).toBe(
      join(home, 'mgw', 'compiled', '1.0.0'),
    );
  });

  it.each(['', 'mgw', 'mgw/compiled', 'mgw/compiled/1.0.0'])(
    'is not used if other users can write to %j',
    (name) => {
      mkdirSync(join(home, 'mgw/compiled/1.0.0'), { recursive: true });
      chmodSync(join(home, name), 0o777);
      expect(openCache('1.0.0', { XDG_CACHE_HOME: home })).toBeUndefined();
    },
  );

  it('is not used if other users can write to .cache, or replace the home folder', () => {
    const own = join(home, 'you');
    mkdirSync(join(own, '.cache'), { recursive: true });
    chmodSync(join(own, '.cache'), 0o777);
    expect(openCache('1.0.0', { HOME: own })).toBeUndefined();
    expect(readdirSync(join(own, '.cache'))).toEqual([]);
    chmodSync(join(own, '.cache'), 0o700);
    chmodSync(own, 0o777);
    expect(openCache('1.0.0', { HOME: own })).toBeUndefined();
    chmodSync(own, 0o755);
    chmodSync(home, 0o777);
    expect(openCache('1.0.0', { HOME: own })).toBeUndefined();
    chmodSync(home, 0o755);
    expect(openCache('1.0.0', { HOME: own })).toBeDefined();
  });

  it.each([
    ['there is no home folder', {}],
    ['the home is not a folder', { HOME: '/dev/null' }],
    ['the home is a relative path', { HOME: 'home' }],
    ['the system refuses the name of the folder', { XDG_CACHE_HOME: '/proc' }],
    ['NODE_DISABLE_COMPILE_CACHE is set', { XDG_CACHE_HOME: tmpdir(), NODE_DISABLE_COMPILE_CACHE: '1' }],
  ])('is not created if %s', (_, env) => {
    expect(openCache('1.0.0', env)).toBeUndefined();
  });
});

describe('a lazily loaded Node module', () => {
  it('provides its classes to the built mgw, which can set and read a budget', () => {
    const home = mkdtempSync(join(tmpdir(), 'mgw-built-'));
    const mgw = (...args: string[]): string =>
      spawnSync(process.execPath, [resolve('bin/mgw.js'), ...args], {
        env: { PATH: process.env['PATH'], HOME: home },
        encoding: 'utf8',
      }).stdout;
    mgw('budget', 'set', 'team', '25');
    expect(mgw('budget', 'ls')).toMatch(/^team +25 /m);
    rmSync(home, { recursive: true });
  });
});
