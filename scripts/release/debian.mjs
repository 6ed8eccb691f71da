import { Buffer } from 'node:buffer';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';

// The packages that the executable needs from the operating system, and a shell for `sandbox exec` and for probes. The
// checksums pin the packages, so the same commit produces the same image.
const suite = 'bookworm';
const packages = [
  [
    'base-files',
    '12.4+deb12u15',
    '3eb1ea6d85488f488cc2a163b98ad640ef88cee4c79287cf14e361aaf6206f47',
    'b1272fbdc197f7d5bd22c05b741a03840f8bec66ca68c8d797f567ff2c99d42d',
  ],
  [
    'busybox',
    '1:1.35.0-4+deb12u1+b1',
    '4b355fad07d4fe1f5aa282e949281f8dcb7bcdebb023d7e40f4f8fe475e21e29',
    'a745b681c0c52e4e0f028e0dab7b85078de1199c1d86c7b4c12502061c24f297',
  ],
  [
    'ca-certificates',
    '20230311+deb12u1',
    '0d5f444f594e48c1e16a41d8fc628a09b24c658916a1274025c2330f2a802bed',
    '0d5f444f594e48c1e16a41d8fc628a09b24c658916a1274025c2330f2a802bed',
  ],
  [
    'gcc-12-base',
    '12.2.0-14+deb12u1',
    '1896a2aacf4ad681ff5eacc24a5b0ca4d5d9c9b9c9e4b6de5197bc1e116ea619',
    '674cf6cba6d432bd200c45fe866c1652c7a53523cc2e7a613e05bc4abf7b5440',
  ],
  [
    'libatomic1',
    '12.2.0-14+deb12u1',
    'fbd4e154a6b444229ea002cc209df099209c0adc09102e5fd21239a3d2b55e2d',
    '1693aa13ce2b30d061a519fc28b77b9bab8c8e45804ced5969d99821e1bc2159',
  ],
  [
    'libc6',
    '2.36-9+deb12u14',
    'ba4f88f73dbc3ae9055f3c20f4523bfdbaf1ad13ff95e258924f77d20b4fbedf',
    '01f4330719fd4f65580e16ea5a0527f372fca750e8f588d26deaf09f2d3b1cf4',
  ],
  [
    'libgcc-s1',
    '12.2.0-14+deb12u1',
    '3016e62cb4b7cd8038822870601f5ed131befe942774d0f745622cc77d8a88f7',
    '576926b283613db80168ddf76380a3bd877602778cf0d226caa7bfbfa71eacf3',
  ],
  [
    'libstdc++6',
    '12.2.0-14+deb12u1',
    '5cd3171216d4ab0fc911cfe9c35509bf2dd8f47761c43b7f6a4296701551a24d',
    '26e138c677a985775331373828a6c286c551ff397cb735d00e2383cb273d1cb2',
  ],
].map(([name, version, amd64, arm64]) => ({ name, version, sums: { amd64, arm64 } }));
// Omits character sets, and all documentation except licences.
const neededPaths =
  /^(lib|lib64|usr\/lib)\/([^/]+\/)?[^/]+$|^bin\/busybox$|^etc\/(os-release|debian_version)$|^usr\/share\/(common-licenses|doc)\/([^/]+|[^/]+\/copyright)$/;
const certificate = /^usr\/share\/ca-certificates\/mozilla\/.+\.crt$/;
const applets = 'cat chmod cp date grep head ls mkdir mv rm sed sh sleep stat tail touch'.split(' ');

/**
 * Returns the files of a small Debian system as tar entries: the C and C++ libraries, a shell and certificates.
 * @param architecture Debian's name for the architecture
 * @param cache the folder that keeps packages for the next release
 * @throws if a package does not match its checksum, or Debian no longer offers it
 */
export function debianFiles(architecture, cache) {
  const own = join(cache, `debian-${architecture}`);
  const root = join(own, 'root');
  const files = download(architecture, own);
  for (const file of files) execFileSync('dpkg-deb', ['--extract', file, root]);
  const paths = readdirSync(root, { recursive: true }).sort();
  const entries = paths.filter((path) => neededPaths.test(path)).flatMap((path) => entry(root, path));
  const certificates = paths
    .filter((path) => certificate.test(path))
    .map((path) => readFileSync(join(root, path)));
  const status = files.map((file) =>
    execFileSync('dpkg-deb', ['--field', file], { encoding: 'utf8' }).replace(
      '\n',
      '\nStatus: install ok installed\n',
    ),
  );
  return [
    ...entries,
    ...applets.map((name) => ({ path: `bin/${name}`, link: 'busybox' })),
    { path: 'usr/bin/env', link: '../../bin/busybox' },
    { path: 'etc/ssl/certs/ca-certificates.crt', body: Buffer.concat(certificates) },
    { path: 'var/lib/dpkg/status', body: status.join('\n') },
  ];
}

function entry(root, path) {
  const file = join(root, path);
  const stats = lstatSync(file);
  if (stats.isSymbolicLink()) return [{ path, link: readlinkSync(file) }];
  return stats.isFile() ? [{ path, body: readFileSync(file), mode: stats.mode & 0o777 }] : [];
}

// Downloads with apt, but with separate apt state, because the packages may be for a different system than this
// machine's.
function download(architecture, own) {
  const debs = join(own, 'debs');
  const fileOf = ({ name, version }) =>
    readdirSync(debs).find((file) => file.startsWith(`${name}_${version.replace(':', '%3a')}_`));
  for (const folder of ['lists/partial', 'cache/archives/partial'])
    mkdirSync(join(own, folder), { recursive: true });
  mkdirSync(debs, { recursive: true });
  const missing = packages.filter((each) => fileOf(each) === undefined);
  if (missing.length > 0) {
    const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';
    writeFileSync(
      join(own, 'sources.list'),
      `deb [signed-by=${keyring}] http://deb.debian.org/debian ${suite} main\n`,
    );
    if (!existsSync(join(own, 'status'))) writeFileSync(join(own, 'status'), '');
    const settings = [
      ...[`APT::Architecture=${architecture}`, `APT::Architectures=${architecture}`],
      ...[
        `Dir::State=${own}`,
        `Dir::State::status=${join(own, 'status')}`,
        `Dir::Cache=${join(own, 'cache')}`,
      ],
      ...[
        `Dir::Etc::sourcelist=${join(own, 'sources.list')}`,
        'Dir::Etc::sourceparts=-',
        'Acquire::Languages=none',
      ],
      'APT::Sandbox::User=root',
    ].flatMap((setting) => ['-o', setting]);
    const apt = (...words) =>
      execFileSync('apt-get', [...settings, '-qq', ...words], { cwd: debs, stdio: 'pipe' });
    apt('update');
    apt('download', ...missing.map(({ name, version }) => `${name}=${version}`));
  }
  return packages.map((each) => {
    const file = join(debs, fileOf(each));
    const found = createHash('sha256').update(readFileSync(file)).digest('hex');
    if (found !== each.sums[architecture]) throw new Error(`${basename(file)}: its SHA-256 is ${found}`);
    return file;
  });
}
