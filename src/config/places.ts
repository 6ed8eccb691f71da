import path from 'node:path';
import { messageOf, MgwError, systemCode } from '../errors.ts';
import { homeFolder } from '../installation.ts';
import { printableLine } from '../printable.ts';
import { badSetting, type Env } from './layers.ts';

/** The properties of a machine that determine mgw's folders. */
export interface Host {
  /** The user's home folder; empty if there is none. */
  home: string;
  platform: NodeJS.Platform;
  /** The current working directory. */
  cwd: string;
}

/**
 * Describes the local machine.
 * @throws MgwError('local_io') if the current folder has been removed. Every command calls this function before it sends
 * anything, and Node remembers the folder, so that no later step can fail for this reason.
 */
export function thisHost(): Host {
  return { home: homeFolder(), platform: process.platform, cwd: currentFolder() };
}

function currentFolder(): string {
  try {
    return process.cwd();
  } catch (error) {
    const isGone = systemCode(error) === 'ENOENT';
    const text = isGone ? 'no longer exists' : `cannot be determined: ${messageOf(error)}`;
    throw new MgwError('local_io', `The current folder ${text}.`, { next: ['cd'], cause: error });
  }
}

/** A folder, and the environment variable that sets it. */
export interface Folder {
  path: string;
  /** The name of the variable; undefined for the default path. */
  variable?: string;
}

/**
 * Returns the config file's folder: MGW_CONFIG_DIR, XDG_CONFIG_HOME/mgw, %AppData%\mgw, or ~/.config/mgw.
 * @throws MgwError('config') if the path is relative, or there is no home folder.
 */
export function configFolder(env: Env, host: Host): Folder {
  return folder(env, host, {
    own: 'MGW_CONFIG_DIR',
    xdg: 'XDG_CONFIG_HOME',
    windows: 'APPDATA',
    home: '.config',
  });
}

/**
 * Returns the ledger's folder: MGW_STATE_DIR, XDG_STATE_HOME/mgw, %LocalAppData%\mgw, or ~/.local/state/mgw.
 * @throws MgwError('config') if the path is relative, or there is no home folder.
 */
export function stateFolder(env: Env, host: Host): Folder {
  return folder(env, host, {
    own: 'MGW_STATE_DIR',
    xdg: 'XDG_STATE_HOME',
    windows: 'LOCALAPPDATA',
    home: path.join('.local', 'state'),
  });
}

interface Names {
  own: string;
  xdg: string;
  windows: string;
  /** The path below the home folder. */
  home: string;
}

function folder(env: Env, host: Host, names: Names): Folder {
  const own = env[names.own];
  if (own) return { path: absolute(own, names.own, host), variable: names.own };
  const bases = host.platform === 'win32' ? [names.xdg, names.windows] : [names.xdg];
  for (const variable of bases) {
    const base = env[variable];
    // The XDG specification requires relative paths to be ignored.
    if (base && path.isAbsolute(base)) return { path: path.join(base, 'mgw'), variable };
  }
  if (host.home === '') throw noHome();
  return { path: path.join(absolute(host.home, 'HOME', host), names.home, 'mgw') };
}

function noHome(): MgwError {
  const text = 'This user has no home folder. Set HOME, or both MGW_STATE_DIR and MGW_CONFIG_DIR.';
  return new MgwError('config', text);
}

// A relative path would create a separate ledger for each folder that mgw runs in.
function absolute(folder: string, variable: string, { cwd, home }: Host): string {
  if (path.isAbsolute(folder)) return path.normalize(folder);
  const cause = new Error(
    `an absolute path such as ${printableLine(path.resolve(cwd, folder.replace(/^~(?=\/|$)/, home)), 200)}`,
  );
  throw badSetting(variable, { source: 'env', name: variable }, folder, cause);
}
