import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

// Installs each form of `release/` that runs on this machine into an empty folder, and uses it there.
const release = resolve('release');
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
const root = mkdtempSync(join(tmpdir(), 'mgw-release-'));
try {
  checkSums();
  checkManifests();
  useNpm();
  useExecutable(join(release, `mgw-${version}-linux-${process.arch}`), 'executable');
  useDeb();
} finally {
  rmSync(root, { recursive: true, force: true });
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

// Every address in them is a file of the release, followed by its checksum.
function checkManifests() {
  const sums = readFileSync(join(release, 'SHA256SUMS'), 'utf8');
  for (const [name, count] of Object.entries({ 'mgw.rb': 3, 'mgw.json': 1, 'mgw.yaml': 1 })) {
    const text = readFileSync(join(release, name), 'utf8');
    const named = [...text.matchAll(/download\/v[^/]+\/([\w.-]+)"?,?\s+\W?\w+\W+([0-9a-f]{64})\b/gi)];
    const isRight = named.every(([, file, sum]) => sums.includes(`${sum.toLowerCase()}  ${file}\n`));
    expect(named.length === count && isRight, `the checksums in ${name}`, named);
  }
}

function useNpm() {
  const prefix = join(root, 'npm');
  const env = { ...process.env, npm_config_cache: join(root, 'npm-cache') };
  const flags = ['--global', '--offline', '--no-audit', '--no-fund', '--prefix', prefix];
  execFileSync('npm', ['install', ...flags, join(release, `mgw-${version}.tgz`)], { env, stdio: 'pipe' });
  expect(existsSync(join(prefix, 'share/man/man1/mgw.1')), 'npm: man page', prefix);
  use(join(prefix, 'bin/mgw'), 'npm');
}

function useDeb() {
  const folder = join(root, 'deb');
  const architecture = process.arch === 'x64' ? 'amd64' : 'arm64';
  execFileSync('dpkg-deb', ['--extract', join(release, `mgw_${version}_${architecture}.deb`), folder]);
  for (const file of ['man/man1/mgw.1.gz', 'bash-completion/completions/mgw', 'zsh/vendor-completions/_mgw'])
    expect(existsSync(join(folder, 'usr/share', file)), `deb: ${file}`, folder);
  useExecutable(join(folder, 'usr/bin/mgw'), 'deb');
}

function useExecutable(file, form) {
  use(file, form);
  const run = spawnSync(file, ['--version'], { env: { NODE_OPTIONS: '--not-a-flag' }, encoding: 'utf8' });
  expect(run.stdout === `${version}\n`, `${form}: ignores NODE_OPTIONS`, run);
}

// Without another mgw or, except for npm's form, a Node on its PATH.
function use(file, form) {
  const home = join(root, `home-${form}`);
  mkdirSync(home);
  const node = form === 'npm' ? `${process.execPath.replace(/\/node$/, '')}:` : '';
  const env = { HOME: home, PATH: `${node}/usr/bin:/bin` };
  const mgw = (what, args, pattern) => {
    const run = spawnSync(file, args, { cwd: home, env, encoding: 'utf8' });
    expect(run.status === 0 && pattern.test(run.stdout), `${form}: ${what}`, run);
  };
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
  for (const topic of ['resuming', 'exit-codes', 'output']) mgw(`help ${topic}`, ['help', topic], /\S/);
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
