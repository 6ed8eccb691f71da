import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { commandsIn, openImage } from './root.mjs';
import { targets } from './targets.mjs';

// Installs each form of mgw in `release/` that runs on this machine into an empty root, and runs it there with chroot.
const release = resolve('release');
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
if (process.getuid?.() !== 0) throw new Error('release:check needs root, for chroot: run it with sudo');
const work = mkdtempSync(join(tmpdir(), 'mgw-release-'));
try {
  checkSums();
  checkManifests();
  checkPacked();
  const image = openImage(join(release, `mgw-${version}-oci.tar`), join(work, 'oci'));
  useImage(image);
  useExecutable(image);
  useDeb(image);
  useNpm(image);
} finally {
  rmSync(work, { recursive: true, force: true });
}

function checkSums() {
  for (const line of readFileSync(join(release, 'SHA256SUMS'), 'utf8').trim().split('\n')) {
    const [sum, name] = line.split('  ');
    const found = createHash('sha256')
      .update(readFileSync(join(release, name)))
      .digest('hex');
    expect(found === sum, `the checksum of ${name}`, found);
  }
}

// Checks that every URL in the manifests refers to a release file, and is followed by that file's checksum.
function checkManifests() {
  const sums = readFileSync(join(release, 'SHA256SUMS'), 'utf8');
  for (const [name, count] of Object.entries({ 'mgw.rb': 3, 'mgw.json': 1, 'mgw.yaml': 1 })) {
    const text = readFileSync(join(release, name), 'utf8');
    const downloads = [...text.matchAll(/download\/v[^/]+\/([\w.-]+)"?,?\s+\W?\w+\W+([0-9a-f]{64})\b/gi)];
    const isRight = downloads.every(([, file, sum]) => sums.includes(`${sum.toLowerCase()}  ${file}\n`));
    expect(downloads.length === count && isRight, `the checksums in ${name}`, downloads);
  }
}

// Checks that the compressed files contain the tested executable.
function checkPacked() {
  for (const { name, suffix = '' } of targets) {
    const base = join(release, `mgw-${version}-${name}`);
    const [packed, command] = suffix ? [`${base}.zip`, ['unzip', '-p']] : [`${base}.zst`, ['zstd', '-dc']];
    const unpacked = execFileSync(command[0], [command[1], packed], { maxBuffer: 2 ** 28 });
    expect(unpacked.equals(readFileSync(`${base}${suffix}`)), `unpacked: ${name}`, unpacked.length);
  }
}

function useNpm(image) {
  const root = rootOf(image, 'npm');
  const env = { ...process.env, npm_config_cache: join(work, 'npm-cache') };
  const prefix = join(root, 'usr/local');
  const flags = ['--global', '--offline', '--no-audit', '--no-fund', '--prefix', prefix];
  execFileSync('npm', ['install', ...flags, join(release, `mgw-${version}.tgz`)], { env, stdio: 'pipe' });
  expect(existsSync(join(prefix, 'share/man/man1/mgw.1')), 'npm: man page', prefix);
  copyFileSync(process.execPath, join(prefix, 'bin/node'));
  use(image, root, 'npm', '/usr/local/bin/mgw');
}

function useExecutable(image) {
  const root = rootOf(image, 'executable');
  mkdirSync(join(root, 'usr/local/bin'), { recursive: true });
  copyFileSync(join(release, `mgw-${version}-linux-${process.arch}`), join(root, 'usr/local/bin/mgw'));
  // A decoy at the path that the help file has in the npm package. The executable must not print it.
  mkdirSync(join(root, 'usr/local/dist'));
  writeFileSync(join(root, 'usr/local/dist/help.txt'), 'the help of another program\n');
  use(image, root, 'executable', '/usr/local/bin/mgw');
}

// dpkg refuses a package whose dependencies are not installed.
function useDeb(image) {
  const root = rootOf(image, 'deb');
  const architecture = process.arch === 'x64' ? 'amd64' : 'arm64';
  const file = join(release, `mgw_${version}_${architecture}.deb`);
  for (const folder of ['info', 'updates', 'triggers']) mkdirSync(join(root, 'var/lib/dpkg', folder));
  execFileSync('dpkg', [`--root=${root}`, '--install', file], { stdio: 'pipe' });
  for (const name of ['man/man1/mgw.1.gz', 'bash-completion/completions/mgw', 'zsh/vendor-completions/_mgw'])
    expect(existsSync(join(root, 'usr/share', name)), `deb: ${name}`, root);
  use(image, root, 'deb', '/usr/bin/mgw');
}

function useImage(image) {
  const root = join(work, 'image');
  image.unpack(root);
  const [command] = image.config.Entrypoint;
  use(image, root, 'image', command);
}

// Returns a root without Node or mgw.
function rootOf(image, form) {
  const root = join(work, form);
  image.unpack(root, 1);
  return root;
}

function use({ config }, root, form, file) {
  const run = commandsIn(root, config);
  const home = join(root, config.WorkingDir);
  const mgw = (what, args, pattern, env) => {
    const ended = run([file, ...args], env);
    expect(ended.status === 0 && pattern.test(ended.stdout), `${form}: ${what}`, ended);
  };
  if (form !== 'npm') mgw('ignores NODE_OPTIONS', ['--version'], /^\d/, { NODE_OPTIONS: '--not-a-flag' });
  mgw('version', ['--version'], new RegExp(`^${version.replaceAll('.', '\\.')}\n$`));
  mgw('settings', ['config', 'set', 'sandbox.pace', '50ms'], /^/);
  mgw(
    'video',
    ['--sandbox', 'video', 'submit', 'a boat', '--model', 'vendor-h3-mini', '-o', 'b.mp4'],
    /b\.mp4\n$/,
  );
  expect(readFileSync(join(home, 'b.mp4')).toString('latin1', 4, 8) === 'ftyp', `${form}: an MP4`, home);
  mgw('speech', ['--sandbox', 'tts', 'Good morning', '-o', 'm.mp3'], /m\.mp3\n$/);
  mgw('gallery', ['--sandbox', 'jobs', 'gallery', '-o', 'page'], /page/);
  mgw('help', ['--help'], /^Video and speech on a media gateway/);
  for (const topic of ['resuming', 'exit-codes', 'output']) mgw(`help ${topic}`, ['help', topic], /\S/);
  mgw('help kubernetes.yaml', ['help', 'kubernetes.yaml'], /^kind: Deployment$/m);
  mgw('without HOME', ['jobs', 'ls', '--json'], /"ok": ?true/, { HOME: undefined });
  mgw('skill', ['skill', 'install'], /SKILL\.md/);
  for (const shell of ['bash', 'zsh', 'fish']) mgw(`completion ${shell}`, ['completion', shell], /mgw/);
  const script = 'mgw video submit "a boat" --model vendor-h3-mini -o inner.mp4 && mgw doctor';
  mgw('sandbox exec', ['sandbox', 'exec', '--', 'sh', '-c', script], new RegExp(`form: ${form}`));
  mgw('hashing thread', ['--sandbox', '--json', 'jobs', 'show', '@last'], /"sha256": ?"[0-9a-f]{64}"/);
}

function expect(isFine, what, found) {
  if (!isFine) throw Object.assign(new Error(`release:check failed: ${what}`), { found });
  process.stdout.write(`ok ${what}\n`);
}
