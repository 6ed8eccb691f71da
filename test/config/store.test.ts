import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/read.ts';
import { changeConfig, changeProfile } from '../../src/config/store.ts';

let root: string;
let folder: string;
let file: string;
let env: Record<string, string>;

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'mgw-store-'));
  folder = path.join(root, 'deep', 'mgw');
  file = path.join(folder, 'config.json');
  env = { MGW_CONFIG_DIR: folder };
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const mode = (name: string): number => statSync(name).mode & 0o777;

describe('changeProfile', () => {
  it('creates a 0600 file in a 0700 folder, regardless of the umask', async () => {
    const umask = process.umask(0);
    try {
      await changeProfile(env, 'default', () => ({ api_key: 'sk-1' }));
    } finally {
      process.umask(umask);
    }
    expect(mode(folder)).toBe(0o700);
    expect(mode(file)).toBe(0o600);
    expect(readdirSync(folder)).toEqual(['config.json']);
    expect(await readConfig(env)).toEqual({ profiles: { default: { api_key: 'sk-1' } } });
  });

  it('changes one profile without changing the others', async () => {
    await changeProfile(env, 'one', () => ({ retries: 1 }));
    await changeProfile(env, 'two', () => ({ base_url: 'https://two.example' }));
    await changeProfile(env, 'one', (profile) => ({ ...profile, timeout: '5m' }));
    expect((await readConfig(env)).profiles).toEqual({
      one: { retries: 1, timeout: '5m' },
      two: { base_url: 'https://two.example' },
    });
  });

  it('distinguishes models with dots in their names', async () => {
    const defaults = { video: { a: { 'veo-3.1': { duration: 8 } } } };
    await changeProfile(env, 'default', () => ({ defaults }));
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ profiles: { default: { defaults } } });
  });

  it('restricts the permissions of a file before a key is added', async () => {
    mkdirSync(folder, { recursive: true });
    writeFileSync(file, '{"profiles":{}}');
    chmodSync(file, 0o644);
    await changeProfile(env, 'default', () => ({ api_key: 'sk-1' }));
    expect(mode(file)).toBe(0o600);
  });

  it('writes through a link without replacing it', async () => {
    mkdirSync(folder, { recursive: true });
    const target = path.join(root, 'dotfiles.json');
    writeFileSync(target, '{"profiles":{}}', { mode: 0o600 });
    symlinkSync(target, file);
    await changeProfile(env, 'default', () => ({ retries: 2 }));
    expect(lstatSync(file).isSymbolicLink()).toBe(true);
    expect(JSON.parse(readFileSync(target, 'utf8'))).toEqual({ profiles: { default: { retries: 2 } } });
  });
});

describe('concurrent changes of the config', () => {
  it('all take effect', async () => {
    const names = ['one', 'two', 'three', 'four', 'five'];
    await Promise.all(names.map((name) => changeProfile(env, name, () => ({ retries: 1 }))));
    expect(Object.keys((await readConfig(env)).profiles).sort()).toEqual(names.sort());
    expect(readdirSync(folder)).toEqual(['config.json']);
  });

  it("are not blocked by a dead process's lock", async () => {
    await changeProfile(env, 'one', () => ({}));
    writeFileSync(`${file}.lock`, '');
    utimesSync(`${file}.lock`, 1, 1);
    await changeProfile(env, 'two', () => ({}));
    expect(Object.keys((await readConfig(env)).profiles)).toEqual(['one', 'two']);
  });
});

describe('changeConfig', () => {
  it('refuses a config file that is invalid, and leaves it unchanged', async () => {
    mkdirSync(folder, { recursive: true });
    for (const text of ['not JSON', '{"__proto__":{}}', '[]']) {
      writeFileSync(file, text, { mode: 0o600 });
      await expect(changeConfig(env, (config) => config)).rejects.toMatchObject({
        code: 'config',
        exitCode: 2,
      });
      expect(readFileSync(file, 'utf8')).toBe(text);
    }
  });

  it('refuses a change that makes the config invalid, but accepts one that repairs it', async () => {
    mkdirSync(folder, { recursive: true });
    writeFileSync(file, '{"profiles":{"default":{"retries":"many"}}}', { mode: 0o600 });
    await expect(changeConfig(env, (config) => ({ ...config, profile: 'x' }))).rejects.toMatchObject({
      code: 'config',
    });
    await changeProfile(env, 'default', () => ({}));
    expect(await readConfig(env)).toEqual({ profiles: { default: {} } });
  });

  it('reports a config file that cannot be written', async () => {
    writeFileSync(path.join(root, 'deep'), 'a file where a folder should be');
    await expect(changeProfile(env, 'default', () => ({}))).rejects.toMatchObject({
      name: 'MgwError',
      code: 'config',
    });
    expect(existsSync(file)).toBe(false);
    const failing = { MGW_CONFIG_DIR: '/proc/nowhere/mgw' };
    await expect(changeProfile(failing, 'default', () => ({}))).rejects.toMatchObject({
      code: 'local_io',
      exitCode: 10,
    });
  });
});
