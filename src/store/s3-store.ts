import { extname } from 'node:path';
import { usageError } from '../errors.ts';
import { parseStoreUrl } from '../store-url.ts';
import { S3Client, xmlText } from './s3-client.ts';
import { md5, sendUntilEqual } from './s3-object.ts';
import type { Store, StoreDeps, StoreSettings, UploadedInput } from './store.ts';

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
  const folder = prefix
    .split('/')
    .filter(Boolean)
    .map((step) => `${step}/`)
    .join('');
  const keyOf = (name: string): string => folder + name.replace(/^sha256:/, '');
  return {
    url: async (name, read) => {
      const key = keyOf(name);
      const found = await client.call({ method: 'HEAD', key });
      if (found.status === 404) await upload(client, key, name, read, deps.note);
      else if (found.status !== 200) throw client.refused('look for', name, found);
      return client.presigned(key, expiresMs);
    },
    describe: async (name) => {
      const { status, headers, ...reply } = await client.call({ method: 'HEAD', key: keyOf(name) });
      if (status !== 200) throw client.refused('look for', name, { status, headers, ...reply });
      return { mime: headers['content-type'] ?? '', bytes: Number(headers['content-length'] ?? 0) };
    },
    uploads: {
      list: () => listed(client, folder),
      remove: async (name) => {
        const removed = await client.call({ method: 'DELETE', key: keyOf(name) });
        if (removed.status > 299 && removed.status !== 404) throw client.refused('remove', name, removed);
      },
    },
    close: () => client.close(),
  };
}

// A page has at most 1000 objects. Objects whose names are not those of uploads are not mgw's.
async function listed(client: S3Client, folder: string): Promise<UploadedInput[]> {
  const found: UploadedInput[] = [];
  for (let token: string | undefined; ;) {
    const page = token === undefined ? undefined : { 'continuation-token': token };
    const query = { 'list-type': '2', prefix: folder, delimiter: '/', ...page };
    const reply = await client.call({ method: 'GET', key: '', query });
    if (reply.status !== 200) throw client.refused('list', `s3://${client.bucket}/${folder}`, reply);
    for (const xml of reply.text.split('<Contents>').slice(1)) {
      const key = xmlText(xml, 'Key') ?? '';
      const file = key.startsWith(folder) ? key.slice(folder.length) : '';
      if (!/^[\da-f]{64}(\.[a-z\d]{1,8})?$/.test(file)) continue;
      found.push({
        name: `sha256:${file}`,
        url: `s3://${client.bucket}/${key}`,
        bytes: Number(xmlText(xml, 'Size') ?? 0),
        uploaded_at: xmlText(xml, 'LastModified') ?? '',
      });
    }
    const next = xmlText(reply.text, 'NextContinuationToken');
    if (xmlText(reply.text, 'IsTruncated') !== 'true' || next === undefined || next === token) return found;
    token = next;
  }
}

// Repeating is safe: an object's name is the hash of its content.
async function upload(
  client: S3Client,
  key: string,
  name: string,
  read: (() => Promise<Uint8Array>) | undefined,
  note: (text: string) => void,
): Promise<void> {
  if (read === undefined)
    throw usageError(
      `The store s3://${client.bucket} no longer has ${name}. Run the original command with the file again.`,
    );
  const body = await read();
  const headers = { 'content-type': typeOf(name), 'content-md5': md5(body, 'base64') };
  const stored = await sendUntilEqual(body, name, note, () =>
    client.call({ method: 'PUT', key, headers, body }),
  ).catch(async (error: unknown) => {
    // Else the next run would take it as the file of that name.
    await client.call({ method: 'DELETE', key }).catch(() => undefined);
    throw error;
  });
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
