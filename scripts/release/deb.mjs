import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { ar, tar } from './archives.mjs';

/**
 * Returns a Debian package's files as a tar archive.
 * @param licences the text of all licences
 */
export function debData(executable, licences) {
  const completion = (shell) => execFileSync(process.execPath, ['bin/mgw.js', 'completion', shell]);
  const files = [
    { path: './usr/bin/mgw', body: readFileSync(executable), mode: 0o755 },
    { path: './usr/share/bash-completion/completions/mgw', body: completion('bash') },
    { path: './usr/share/doc/mgw/copyright', body: licences },
    { path: './usr/share/fish/vendor_completions.d/mgw.fish', body: completion('fish') },
    { path: './usr/share/man/man1/mgw.1.gz', body: gzipSync(readFileSync('dist/mgw.1'), { level: 9 }) },
    { path: './usr/share/mgw/form', body: 'deb\n' },
    { path: './usr/share/zsh/vendor-completions/_mgw', body: completion('zsh') },
  ];
  const folders = files.flatMap(({ path }) =>
    Array.from(path.matchAll(/\//g), ({ index }) => path.slice(0, index + 1)),
  );
  return tar([...[...new Set(folders)].sort().map((path) => ({ path })), ...files]);
}

/**
 * Returns a Debian package.
 * @param data the result of {@link debData}, compressed with zstd
 * @param size the size of the unpacked data, in bytes
 */
export function deb({ version, architecture, data, size }) {
  const control = `Package: mgw
Version: ${version}
Architecture: ${architecture}
Maintainer: The maintainers of mgw <maintainers@mgw.invalid>
Installed-Size: ${Math.ceil(size / 1024)}
Depends: libc6 (>= 2.28), libstdc++6, libatomic1
Recommends: ca-certificates
Section: utils
Priority: optional
Description: video and speech jobs on a media generation gateway
 Submits, resumes and saves jobs from a terminal or a script. Never pays twice by itself.
`;
  return ar([
    { name: 'debian-binary', body: '2.0\n' },
    { name: 'control.tar.gz', body: gzipSync(tar([{ path: './' }, { path: './control', body: control }])) },
    { name: 'data.tar.zst', body: data },
  ]);
}
