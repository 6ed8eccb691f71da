import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { tar } from './archives.mjs';

const maxLayers = 60e6;
const user = 65_532;
const oci = (kind) => `application/vnd.oci.image.${kind}`;

/**
 * Returns an image for several platforms, as a tar archive of an OCI layout. `docker load` also accepts the archive.
 * @param platforms `architecture`; `base`, the operating system's tar entries; `executable`, the executable's bytes
 * @throws if a platform's layers exceed the limit
 */
export function image({ version, license, platforms, licences }) {
  const blobs = new Map();
  const add = (body, mediaType) => {
    const digest = sha256(body);
    blobs.set(`blobs/sha256/${digest}`, body);
    return { mediaType, digest: `sha256:${digest}`, size: Buffer.byteLength(body) };
  };
  const title = { 'org.opencontainers.image.version': version, 'org.opencontainers.image.licenses': license };
  const manifests = platforms.map(({ architecture, base, executable }) => {
    const tars = [system(base), own(executable, licences)];
    const layers = tars.map((layer) => add(gzipSync(layer, { level: 9 }), oci('layer.v1.tar+gzip')));
    const size = layers.reduce((sum, layer) => sum + layer.size, 0);
    if (size > maxLayers)
      throw new Error(`the layers for ${architecture} have ${size} bytes; the limit is ${maxLayers}`);
    const config = {
      ...{ created: '1970-01-01T00:00:00Z', architecture, os: 'linux' },
      config: {
        ...{ User: String(user), WorkingDir: '/data', Entrypoint: ['/usr/bin/mgw'], Labels: title },
        Env: ['PATH=/usr/local/bin:/usr/bin:/bin', 'HOME=/data'],
      },
      rootfs: { type: 'layers', diff_ids: tars.map((layer) => `sha256:${sha256(layer)}`) },
    };
    const manifest = {
      ...{ schemaVersion: 2, mediaType: oci('manifest.v1+json') },
      config: add(JSON.stringify(config), oci('config.v1+json')),
      ...{ layers, annotations: title },
    };
    const platform = { os: 'linux', architecture };
    return {
      manifest,
      platform,
      described: { ...add(JSON.stringify(manifest), manifest.mediaType), platform },
    };
  });
  const index = { schemaVersion: 2, mediaType: oci('index.v1+json') };
  const all = add(
    JSON.stringify({ ...index, manifests: manifests.map(({ described }) => described), annotations: title }),
    index.mediaType,
  );
  const annotations = {
    ...{
      'org.opencontainers.image.ref.name': version,
      'io.containerd.image.name': `docker.io/library/mgw:${version}`,
    },
  };
  const pathOf = ({ digest }) => `blobs/${digest.replace(':', '/')}`;
  // Docker reads only this manifest if it does not use containerd's image store.
  const forDocker = manifests.map(({ manifest, platform }) => ({
    Config: pathOf(manifest.config),
    RepoTags: [`mgw:${version}${platform.architecture === 'amd64' ? '' : `-${platform.architecture}`}`],
    Layers: manifest.layers.map(pathOf),
  }));
  return tar([
    { path: 'oci-layout', body: '{"imageLayoutVersion":"1.0.0"}' },
    { path: 'index.json', body: JSON.stringify({ ...index, manifests: [{ ...all, annotations }] }) },
    { path: 'manifest.json', body: JSON.stringify(forDocker) },
    ...['blobs/', 'blobs/sha256/'].map((path) => ({ path })),
    ...[...blobs].map(([path, body]) => ({ path, body })),
  ]);
}

function system(base) {
  return layer([
    ...base,
    { path: 'etc/passwd', body: `root:x:0:0::/:/bin/sh\nmgw:x:${user}:${user}::/data:/bin/sh\n` },
    { path: 'etc/group', body: `root:x:0:\nmgw:x:${user}:\n` },
    { path: 'etc/nsswitch.conf', body: 'passwd: files\ngroup: files\nhosts: files dns\n' },
    ...['dev/', 'proc/'].map((path) => ({ path })),
    { path: 'tmp/', mode: 0o1777 },
    { path: 'data/', owner: user },
  ]);
}

function own(executable, licences) {
  return layer([
    { path: 'usr/bin/mgw', body: executable, mode: 0o755 },
    { path: 'usr/share/doc/mgw/copyright', body: licences },
    { path: 'usr/share/mgw/form', body: 'image\n' },
  ]);
}

// Adds the files' parent folders, and sorts the entries, so each folder precedes its contents.
function layer(entries) {
  const paths = new Map(entries.map((entry) => [entry.path, entry]));
  for (const { path } of entries)
    for (const { index } of path.matchAll(/\/(?!$)/g)) {
      const folder = path.slice(0, index + 1);
      if (!paths.has(folder)) paths.set(folder, { path: folder });
    }
  return tar([...paths.keys()].sort().map((path) => paths.get(path)));
}

function sha256(bytes) {
  return createHash('sha256').update(bytes).digest('hex');
}
