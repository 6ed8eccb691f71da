// Provides the peers that mgw is compared with, and installs missing peers: npm packages in a separate folder, programs
// as Debian packages. No peer is in package.json.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = join(import.meta.dirname, '.peers');

/**
 * Returns an npm package within a version range, and installs it if necessary.
 * @returns {{ path: string, version: string }} the package's import path and version
 */
export function npmPackage(name, range) {
  const own = join(folder, `${name.replace(/\W+/g, '-')}@${range}`);
  const path = join(own, 'node_modules', name);
  if (!existsSync(join(path, 'package.json'))) {
    mkdirSync(own, { recursive: true });
    writeFileSync(join(own, 'package.json'), '{ "private": true, "type": "module" }\n');
    const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    execFileSync('npm', ['install', ...flags, `${name}@${range}`], { cwd: own, stdio: 'inherit' });
  }
  return { path, version: JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')).version };
}

/**
 * Returns the path of a program, and installs its Debian package if the program is not on the PATH.
 *
 * @returns {string | undefined} undefined if the program is missing and cannot be installed; its rows are then omitted
 */
export function program(name, debianPackage = name) {
  if (isInstalled(name)) return name;
  const root = process.getuid?.() === 0 ? [] : ['sudo', '-n'];
  const [command, ...args] = [...root, 'apt-get', 'install', '-y', '--no-install-recommends', debianPackage];
  spawnSync(command, args, { stdio: 'ignore', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } });
  return isInstalled(name) ? name : undefined;
}

function isInstalled(name) {
  return spawnSync('bash', ['-c', 'command -v "$0"', name]).status === 0;
}

/**
 * Returns the given major versions of Node, from npm packages. For the major version of the running Node, returns the
 * running Node.
 * @returns {{ major: number, version: string, path: string }[]}
 */
export function nodes(majors) {
  const running = { major: Number(process.versions.node.split('.')[0]), path: process.execPath };
  return majors.map((major) => {
    if (major === running.major) return { ...running, version: process.versions.node };
    const { path, version } = npmPackage(`node-${process.platform}-${process.arch}`, String(major));
    return { major, version, path: join(path, 'bin', 'node') };
  });
}
