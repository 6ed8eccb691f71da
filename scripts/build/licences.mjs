import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const fileName = 'THIRD-PARTY-LICENSES.txt';

/**
 * Writes the licences of all bundled packages next to the bundle, because they must be distributed with it. A package
 * without a licence fails the build. Also writes the list of packages as an SBOM (CycloneDX).
 */
export function thirdPartyLicences() {
  return {
    name: 'third-party-licences',
    generateBundle(_options, bundle) {
      const chunks = Object.values(bundle).filter(({ type }) => type === 'chunk');
      const files = chunks
        .flatMap(({ moduleIds }) => moduleIds)
        .filter((id) => id.includes('/node_modules/'));
      const folders = [...new Set(files.map(packageFolder))];
      const texts = folders.map(licenceOf).sort((one, other) => (one.title < other.title ? -1 : 1));
      const source = texts
        .map(({ title, text }) => `${title}\n\n${text.trim()}\n`)
        .join(`\n${'-'.repeat(80)}\n\n`);
      this.emitFile({ type: 'asset', fileName, source });
      this.emitFile({ type: 'asset', fileName: 'sbom.cdx.json', source: sbom(folders.map(manifestIn)) });
    },
  };
}

function sbom(manifests) {
  const { name, version, license } = JSON.parse(readFileSync('package.json', 'utf8'));
  const components = manifests.map((one) => component('library', one));
  components.sort((one, other) => (one.purl < other.purl ? -1 : 1));
  const metadata = { component: component('application', { name, version, license }) };
  const bom = { bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, metadata, components };
  return `${JSON.stringify(bom, undefined, 2)}\n`;
}

function component(type, { name, version, license }) {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`;
  return { type, 'bom-ref': purl, name, version, purl, licenses: [{ expression: license }] };
}

// Looks for a package.json with a name, because some packages contain nested ones without a name.
function packageFolder(file) {
  let folder = dirname(file.split('?')[0]);
  while (manifestIn(folder)?.name === undefined) folder = dirname(folder);
  return folder;
}

function manifestIn(folder) {
  const file = join(folder, 'package.json');
  return existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : undefined;
}

function licenceOf(folder) {
  const { name, version, license } = manifestIn(folder);
  const file = readdirSync(folder).find((entry) => /^(licen[cs]e|copying)/i.test(entry));
  const text = file === undefined ? inReadme(folder) : readFileSync(join(folder, file), 'utf8');
  if (text === undefined) throw new Error(`${name} is bundled, but has no licence file`);
  return { title: `${name} ${version} (${license})`, text };
}

// Some packages have their licence under a heading in the README.
function inReadme(folder) {
  const file = readdirSync(folder).find((entry) => /^readme/i.test(entry));
  const text = file === undefined ? '' : readFileSync(join(folder, file), 'utf8');
  return /^#+ licen[cs]e\s+(\S[^]*)/im.exec(text)?.[1];
}
