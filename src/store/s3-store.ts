import { extname } from 'node:path';
import { usageError } from '../errors.ts';
import { parseStoreUrl } from '../store-url.ts';
import { S3Client } from './s3-client.ts';
import type { Store, StoreDeps, StoreSettings } from './store.ts';

/**
 * Opens a store for input files in a bucket.
 * @throws MgwError('config') if there are no credentials, or the endpoint cannot be used.
 */
export async function openS3Store(
  { url, endpoint, expiresMs }: StoreSettings & { url: string },
  env: Readonly<Record<string, string | undefined>>,
  deps: StoreDeps,
): Promise<Store> {
  const { bucket, prefix } = parseStoreUrl(url);
  const client = await S3Client.open(bucket, endpoint, env, deps);
  const keyOf = (name: string): string =>
    [...prefix.split('/').filter(Boolean), name.replace(/^sha256:/, '')].join('/');
  return {
    url: async (name, read) => {
      const key = keyOf(name);
      const found = await client.call({ method: 'HEAD', key });
      if (found.status === 404) await upload(client, key, name, read);
      else if (found.status !== 200) throw client.refused('look for', name, found);
      return client.presigned(key, expiresMs);
    },
    close: () => client.close(),
  };
}

// Repeating is safe: an object's name is the hash of its content.
async function upload(
  client: S3Client,
  key: string,
  name: string,
  read: (() => Promise<Uint8Array>) | undefined,
): Promise<void> {
  if (read === undefined)
    throw usageError(
      `The store s3://${client.bucket} no longer has ${name}. Run the original command with the file again.`,
    );
  const headers = { 'content-type': typeOf(name) };
  const stored = await client.call({ method: 'PUT', key, headers, body: await read() });
  if (stored.status < 200 || stored.status > 299) throw client.refused('upload', name, stored);
}

const types: Record<string, string> = {
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg',
  '.webp': 'image/webp',
  '.gif': 'image/gif',
  '.mp4': 'video/mp4',
  '.mov': 'video/quicktime',
  '.mp3': 'audio/mpeg',
  '.wav': 'audio/wav',
  '.m4a': 'audio/mp4',
};

// Gateways may refuse an image that is served as something else.
function typeOf(name: string): string {
  return types[extname(name)] ?? 'application/octet-stream';
}
