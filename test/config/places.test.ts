import { expect, it, vi } from 'vitest';
import { configFolder, stateFolder, thisHost, type Host } from '../../src/config/places.ts';
import { runAtNewHome } from '../support/one-process.ts';

const host: Host = { home: '/home/ann', platform: 'linux', cwd: '/srv' };

it("mgw's folders are in the home folder by default", () => {
  expect(configFolder({}, host)).toEqual({ path: '/home/ann/.config/mgw' });
  expect(stateFolder({}, { ...host, platform: 'darwin' })).toEqual({ path: '/home/ann/.local/state/mgw' });
});

it("mgw's folders are set by the XDG variables, unless the value is a relative path", () => {
  expect(configFolder({ XDG_CONFIG_HOME: '/x' }, host)).toEqual({
    path: '/x/mgw',
    variable: 'XDG_CONFIG_HOME',
  });
  expect(stateFolder({ XDG_STATE_HOME: '/x' }, host)).toEqual({ path: '/x/mgw', variable: 'XDG_STATE_HOME' });
  expect(stateFolder({ XDG_STATE_HOME: 'x' }, host).path).toBe('/home/ann/.local/state/mgw');
});

it("mgw's folder variables take precedence over the XDG variables", () => {
  const env = {
    MGW_CONFIG_DIR: '/srv/conf/',
    MGW_STATE_DIR: '/s',
    XDG_CONFIG_HOME: '/x',
    XDG_STATE_HOME: '/x',
  };
  expect(configFolder(env, host)).toEqual({ path: '/srv/conf/', variable: 'MGW_CONFIG_DIR' });
  expect(stateFolder(env, host)).toEqual({ path: '/s', variable: 'MGW_STATE_DIR' });
  expect(stateFolder({ MGW_STATE_DIR: '' }, host).variable).toBeUndefined();
});

it('a missing home folder causes an error with the variables to set, unless a variable sets the required folder', () => {
  const nowhere = { ...host, home: '' };
  expect(() => stateFolder({ MGW_CONFIG_DIR: '/c' }, nowhere)).toThrow('Set HOME, or both MGW_STATE_DIR');
  expect(() => configFolder({}, nowhere)).toThrow('no home folder');
  expect(stateFolder({ MGW_STATE_DIR: '/s' }, nowhere).path).toBe('/s');
});

it('APPDATA and LOCALAPPDATA are used only on Windows', () => {
  const env = { APPDATA: '/roaming', LOCALAPPDATA: '/local' };
  expect(configFolder(env, { ...host, platform: 'win32' }).path).toBe('/roaming/mgw');
  expect(stateFolder(env, { ...host, platform: 'win32' }).path).toBe('/local/mgw');
  expect(configFolder(env, host).path).toBe('/home/ann/.config/mgw');
});

it.each([
  ['MGW_STATE_DIR', 'state', '/srv/state'],
  ['MGW_STATE_DIR', '~/state', '/home/ann/state'],
  ['MGW_CONFIG_DIR', '.', '/srv'],
])('%s=%s is refused, because a relative path would depend on the current folder', (name, value, meant) => {
  const look = name === 'MGW_STATE_DIR' ? stateFolder : configFolder;
  expect(() => look({ [name]: value }, host)).toThrow(
    `${name} ${value}: must be an absolute path such as ${meant}.`,
  );
});

it('a relative home folder is refused', () => {
  expect(() => stateFolder({}, { ...host, home: 'home' })).toThrow('HOME home: must be an absolute path');
});

it.each(['jobs ls', 'video c submit a-boat -m vendor-h3-mini', 'mcp', 'skill install'])(
  'mgw %s exits with 10 and charges nothing if the current folder was removed',
  async (words) => {
    const error = Object.assign(new Error('ENOENT: no such file or directory, uv_cwd'), { code: 'ENOENT' });
    const cwd = vi.spyOn(process, 'cwd').mockImplementation(() => {
      throw error;
    });
    const run = await runAtNewHome(words.split(' ')).finally(() => cwd.mockRestore());
    const text = 'mgw: The current folder no longer exists.\n  Nothing was charged. (exit 10)\n  next: cd\n';
    expect([run.code, run.stderr]).toEqual([10, text]);
  },
);

it('reports why the current folder cannot be determined', () => {
  const cwd = vi.spyOn(process, 'cwd').mockImplementation(() => {
    throw Object.assign(new Error('EACCES: permission denied, uv_cwd'), { code: 'EACCES' });
  });
  expect(() => thisHost()).toThrow(
    'The current folder cannot be determined: EACCES: permission denied, uv_cwd.',
  );
  cwd.mockRestore();
});
