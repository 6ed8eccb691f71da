import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { constants, zstdCompress } from 'node:zlib';
import { zip } from './archives.mjs';
import { deb, debData } from './deb.mjs';
import { debianFiles } from './debian.mjs';
import { bundleMain, writeExecutable } from './executable.mjs';
import { image } from './image.mjs';
import { manifests } from './manifests.mjs';
import { unpackNode } from './node-package.mjs';
import { nodeVersion, targets } from './targets.mjs';

// Writes all forms of mgw to `release/`. Their bytes do not depend on the folder, the time or the user.
// `main.mjs` starts this script.
if (process.version !== `v${nodeVersion}`) throw new Error('start this script with npm run release');
process.umask(0o022);
const { version, description, license } = JSON.parse(readFileSync('package.json', 'utf8'));
// The package manager manifests contain the URL of the published files.
const { MGW_REPOSITORY: homepage = 'https://github.com/OWNER/mgw' } = process.env;
const address = `${homepage}/releases/download/v${version}`;
const release = resolve('release');
const cache = resolve('node_modules/.cache/mgw-release');
const work = join(cache, 'work');
const nodes = new Map(targets.map((target) => [target.name, unpackNode(target, cache)]));
const host = nodes.get(`${process.platform}-${process.arch}`);
for (const folder of [release, work]) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}

execFileSync('npm', ['pack', '--silent', '--pack-destination', release], { stdio: 'pipe' });

const main = join(work, 'main.cjs');
await bundleMain(main);
writeFileSync(join(release, 'LICENSES.txt'), licences());
const built = [];
for (const target of targets) {
  const output = executableOf(target);
  const node = join(nodes.get(target.name), target.binary);
  writeExecutable(target, { builder: process.execPath, node, main, folder: work, output });
  if (target.suffix === '.exe')
    writeFileSync(output.replace('.exe', '.zip'), zip('mgw.exe', readFileSync(output)));
  else built.push({ ...target, output });
}
await Promise.all(built.map(pack));
const linux = built.filter(({ architecture }) => architecture !== undefined);
const platforms = linux.map(({ architecture, output }) => ({
  ...{ architecture, base: debianFiles(architecture, cache), executable: readFileSync(output) },
}));
const whole = image({ version, license, platforms, licences: licences() });
writeFileSync(join(release, `mgw-${version}-oci.tar`), whole);
const sbom = readFileSync('dist/sbom.cdx.json', 'utf8');
writeFileSync(join(release, `mgw-${version}.cdx.json`), sbom);
writeFileSync(join(release, `mgw-${version}-executable.cdx.json`), withNode(JSON.parse(sbom)));
writeFileSync(join(release, 'NOTES.md'), notes());
const own = manifests({ version, description, license, homepage, address, sum });
for (const [name, text] of Object.entries(own)) writeFileSync(join(release, name), text);
writeFileSync(join(release, 'SHA256SUMS'), checksums());
rmSync(work, { recursive: true });

function executableOf({ name, suffix = '' }) {
  return join(release, `mgw-${version}-${name}${suffix}`);
}

function withNode(bom) {
  const purl = `pkg:github/nodejs/node@v${nodeVersion}`;
  const node = { type: 'platform', 'bom-ref': purl, name: 'node', version: nodeVersion, purl };
  return `${JSON.stringify({ ...bom, components: [...bom.components, node] }, undefined, 2)}\n`;
}

// Returns the changelog entry of this version, or of the unreleased changes if the changelog
// does not list this version.
function notes() {
  const sections = readFileSync('CHANGELOG.md', 'utf8').split(/^## /m);
  const own = [`[${version}]`, '[Unreleased]'].map((head) => sections.find((text) => text.startsWith(head)));
  const [first = ''] = own.filter(Boolean);
  return `# mgw ${version}\n${first.slice(first.indexOf('\n'))}`;
}

async function pack({ architecture, output }) {
  const executable = packed(readFileSync(output)).then((bytes) => writeFileSync(`${output}.zst`, bytes));
  if (architecture === undefined) return executable;
  const files = debData(output, licences());
  const [data] = await Promise.all([packed(files), executable]);
  const name = `mgw_${version}_${architecture}.deb`;
  writeFileSync(join(release, name), deb({ version, architecture, data, size: files.length }));
}

function packed(bytes) {
  const params = {
    [constants.ZSTD_c_compressionLevel]: 15,
    [constants.ZSTD_c_enableLongDistanceMatching]: 1,
  };
  return promisify(zstdCompress)(bytes, { params });
}

function licences() {
  const files = ['LICENSE', 'dist/THIRD-PARTY-LICENSES.txt', join(host, 'package/LICENSE')];
  return files.map((file) => readFileSync(file, 'utf8').trim()).join(`\n\n${'='.repeat(80)}\n\n`) + '\n';
}

function checksums() {
  return readdirSync(release)
    .sort()
    .map((name) => `${sum(name)}  ${name}\n`)
    .join('');
}

function sum(name) {
  return createHash('sha256')
    .update(readFileSync(join(release, name)))
    .digest('hex');
}
