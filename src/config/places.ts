import { homedir } from 'node:os';
import path from 'node:path';

/** What the folders are derived from, beside the environment. */
export interface Host {
  /** The user's home folder. */
  home: string;
  platform: NodeJS.Platform;
  /** The folder that relative paths start from. */
  cwd: string;
}

/** This machine as it is. */
export function thisHost(): Host {
  return { home: homedir(), platform: process.platform, cwd: process.cwd() };
}

/** Environment variables by name. */
export type Env = Readonly<Record<string, string | undefined>>;

/** A folder, and the variable that names it where one does. */
export interface Folder {
  path: string;
  /** The variable, or undefined where the path is the default one. */
  variable?: string;
}

/** The folder of the config file: MGW_CONFIG_DIR, XDG_CONFIG_HOME/mgw, %AppData%\mgw, or ~/.config/mgw. */
export function configFolder(env: Env, host: Host): Folder {
  return folder(env, host, {
    own: 'MGW_CONFIG_DIR',
    xdg: 'XDG_CONFIG_HOME',
    windows: 'APPDATA',
    home: '.config',
  });
}

/** The folder of the ledger: MGW_STATE_DIR, XDG_STATE_HOME/mgw, %LocalAppData%\mgw, or ~/.local/state/mgw. */
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
  /** Below the home folder. */
  home: string;
}

function folder(env: Env, host: Host, names: Names): Folder {
  const own = env[names.own];
  if (own) return { path: path.resolve(host.cwd, own), variable: names.own };
  const bases = host.platform === 'win32' ? [names.xdg, names.windows] : [names.xdg];
  for (const variable of bases) {
    const base = env[variable];
    // The XDG specification: a relative path is to be ignored.
    if (base && path.isAbsolute(base)) return { path: path.join(base, 'mgw'), variable };
  }
  return { path: path.join(host.home, names.home, 'mgw') };
}
