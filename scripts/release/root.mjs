import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

// Runs commands with chroot. Each root contains only the files that the installed form of mgw needs. /proc and /dev are
// mounted only while a command runs.
const script =
  'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; exec /usr/sbin/chroot --groups= "--userspec=$1" "$0" "${@:2}"';

/**
 * Reads an image for this processor.
 * @returns `config`, and `unpack`, which writes the first `count` layers into an empty folder (1:
 *   only the operating system)
 * @throws if a blob does not match its digest
 */
export function openImage(file, folder) {
  mkdirSync(folder);
  execFileSync('tar', ['-xf', file, '-C', folder]);
  const blob = ({ digest }) => {
    const path = join(folder, 'blobs', digest.replace(':', '/'));
    const found = createHash('sha256').update(readFileSync(path)).digest('hex');
    if (digest !== `sha256:${found}`) throw new Error(`${path}: its SHA-256 is ${found}`);
    return path;
  };
  const read = (descriptor) => JSON.parse(readFileSync(blob(descriptor), 'utf8'));
  const [all] = JSON.parse(readFileSync(join(folder, 'index.json'), 'utf8')).manifests;
  const architecture = process.arch === 'x64' ? 'amd64' : process.arch;
  const { config, layers } = read(
    read(all).manifests.find(({ platform }) => platform.architecture === architecture),
  );
  return {
    config: read(config).config,
    unpack(root, count = layers.length) {
      mkdirSync(root);
      for (const layer of layers.slice(0, count))
        execFileSync('tar', ['--numeric-owner', '-xpzf', blob(layer), '-C', root]);
    },
  };
}

/** Returns a function that runs a command in a root with the image's user, environment and working directory. */
export function commandsIn(root, { User: user, Env: env, WorkingDir: cwd }) {
  const variables = Object.fromEntries(env.map((pair) => pair.split(/=(.*)/s)));
  return (words, extra = {}) => {
    const inside = ['/bin/sh', '-c', 'cd "$0" && exec "$@"', cwd, ...words];
    const outside = ['--mount', '--pid', '--fork', '/bin/bash', '-ec', script, root, `${user}:${user}`];
    return spawnSync('/usr/bin/unshare', [...outside, ...inside], {
      env: { ...variables, ...extra },
      encoding: 'utf8',
    });
  };
}
