import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import type sea from 'node:sea';
import { basename, delimiter, dirname, join, resolve } from 'node:path';
import { MgwError } from './errors.ts';
import manifest from '../package.json' with { type: 'json' };

/** Returns the user's home folder; '' for a user without an account, as in a container, if HOME is not set. */
export function homeFolder(): string {
  try {
    return homedir();
  } catch {
    return '';
  }
}

/** The ways to install mgw (design 18). */
export type InstallMethod = 'npm' | 'executable' | 'deb' | 'image';

/**
 * Returns how this copy of mgw was installed. The .deb and the image contain a file `share/mgw/form` with the method's
 * name, next to the executable's `bin` folder.
 */
export function installMethod(): InstallMethod {
  if (!executable().isSea()) return 'npm';
  const methodFile = join(dirname(dirname(execFile())), 'share', 'mgw', 'form');
  const method = existsSync(methodFile) ? readFileSync(methodFile, 'utf8').trim() : '';
  return method === 'deb' || method === 'image' ? method : 'executable';
}

/** Reads a file of this package as text. @param path relative to the package, with slashes: `docs/output.md` */
export async function readPackageFile(path: string): Promise<string> {
  const { isSea, getAsset } = executable();
  return isSea() ? getAsset(path, 'utf8') : readFile(join(packageFolder(), path), 'utf8');
}

/** Returns the command that starts this copy of mgw: the executable, or Node with the start script. */
export function selfCommand(): string[] {
  return executable().isSea() ? [execFile()] : [execFile(), join(packageFolder(), 'bin', 'mgw.js')];
}

// Without /proc, `execPath` is only the name that started the process. The `mgw` command that `sandbox exec` puts on
// the PATH would find itself under that name and start itself endlessly.
function execFile(): string {
  const { execPath, env } = process;
  if (execPath !== basename(execPath)) return resolve(execPath);
  const files = (env['PATH'] ?? '').split(delimiter).map((folder) => resolve(folder, execPath));
  return files.find((file) => existsSync(file)) ?? execPath;
}

/**
 * Checks that the runtime is Node. Bun, for example, crashes while downloading a video that is already paid for.
 * @throws MgwError('config') if the runtime is not Node.
 */
export function requireNode(versions: NodeJS.ProcessVersions = process.versions): void {
  const other = ['bun', 'deno', 'electron'].find((name) => versions[name] !== undefined);
  if (other === undefined && versions.node && versions.v8) return;
  throw new MgwError(
    'config',
    `mgw runs only on Node, but this is ${other ?? 'an unknown runtime'}. Start it with Node 20.18 or newer, or install a version ` +
      'that includes Node.',
  );
}

// Loads the module only when it is needed, because an import would slow down every start.
function executable(): typeof sea {
  return process.getBuiltinModule('node:sea');
}

// Returns the package's folder. Searches the parent folders, because the bundle and the source are at different depths.
function packageFolder(): string {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, 'package.json'))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error(`no package.json above ${import.meta.dirname}`);
    folder = parent;
  }
  return folder;
}

/** The version of mgw. */
export const version: string = manifest.version;
