import { extname } from 'node:path';
import { usageError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { parseStoreUrl, parseObjectUrl } from '../store-url.ts';
import { S3Client, xmlText } from './s3-client.ts';
import { S3Object, type UploadedFile, type UploadOptions } from './s3-object.ts';
import { isContradicted, md5, sendUntilStored } from './store.ts';
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
      const body = await read?.();
      if (!(await isStored(client, key, name, body))) await upload(client, key, name, body, deps.note);
      return client.presigned(key, expiresMs);
    },
    describe: async (name) => {
      const reply = await client.call({ method: 'HEAD', key: keyOf(name) });
      const { status, headers } = reply;
      if (status !== 200) throw client.refusedError('look for', name, reply);
      return { mime: headers['content-type'] ?? '', bytes: Number(headers['content-length'] ?? 0) };
    },
    uploads: {
      list: () => listUploads(client, folder),
      remove: async (name) => {
        const reply = await client.call({ method: 'DELETE', key: keyOf(name) });
        if (reply.status > 299 && reply.status !== 404) throw client.refusedError('remove', name, reply);
      },
    },
    close: () => client.close(),
  };
}

// Lists uploads in pages of at most 1000 objects. Omits objects whose names are not those of uploads, because they do
// not belong to mgw.
async function listUploads(client: S3Client, folder: string): Promise<UploadedInput[]> {
  const uploads: UploadedInput[] = [];
  for (let token: string | undefined; ;) {
    const page = token === undefined ? undefined : { 'continuation-token': token };
    const query = { 'list-type': '2', prefix: folder, delimiter: '/', ...page };
    const reply = await client.call({ method: 'GET', key: '', query });
    if (reply.status !== 200) throw client.refusedError('list', `s3://${client.bucket}/${folder}`, reply);
    for (const xml of reply.text.split('<Contents>').slice(1)) {
      const key = xmlText(xml, 'Key') ?? '';
      const file = key.startsWith(folder) ? key.slice(folder.length) : '';
      if (!/^[\da-f]{64}(\.[a-z\d]{1,8})?$/.test(file)) continue;
      uploads.push({
        name: `sha256:${file}`,
        url: `s3://${client.bucket}/${key}`,
        bytes: Number(xmlText(xml, 'Size') ?? 0),
        uploaded_at: xmlText(xml, 'LastModified') ?? '',
      });
    }
    const nextToken = xmlText(reply.text, 'NextContinuationToken');
    if (xmlText(reply.text, 'IsTruncated') !== 'true' || nextToken === undefined || nextToken === token)
      return uploads;
    token = nextToken;
  }
}

// Whether the object exists. If the content is available, the size must match it, and so must the service's MD5 if
// there is one.
async function isStored(
  client: S3Client,
  key: string,
  name: string,
  body: Uint8Array | undefined,
): Promise<boolean> {
  const found = await client.call({ method: 'HEAD', key });
  if (found.status !== 200 && found.status !== 404) throw client.refusedError('look for', name, found);
  if (found.status === 404 || body === undefined) return found.status === 200;
  return (
    Number(found.headers['content-length']) === body.length &&
    !isContradicted(found.headers, md5(body, 'hex'))
  );
}

// Uploads content. Repeating an upload is safe, because an object's name is the hash of its content.
async function upload(
  client: S3Client,
  key: string,
  name: string,
  body: Uint8Array | undefined,
  note: (text: string) => void,
): Promise<void> {
  if (body === undefined)
    throw usageError(
      `The store s3://${client.bucket} no longer contains ${name}. Run the original command with the file again.`,
    );
  const type = mimeTypes[extname(name)] ?? 'application/octet-stream';
  const headers = { 'content-type': type, 'content-md5': md5(body, 'base64') };
  let isWrong = false;
  const send = (isCorrupt: boolean): Promise<Reply> => {
    isWrong = isCorrupt;
    return client.call({ method: 'PUT', key, headers, body });
  };
  const reply = await sendUntilStored(body, name, note, send, () => isStored(client, key, name, body)).catch(
    async (error: unknown) => {
      // Remove wrong content, because the next run would mistake it for the file with this name. After any other error,
      // an existing object may belong to another run.
      if (isWrong) await client.call({ method: 'DELETE', key }).catch(() => undefined);
      throw error;
    },
  );
  if (reply.status < 200 || reply.status > 299) throw client.refusedError('upload', name, reply);
}

// Gateways may reject an image that is served with a wrong type.
const mimeTypes: Record<string, string> = {
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

/**
 * Stores results in buckets (design 17). Every method throws MgwError('store'): exit 6 if a retry may succeed, else 10.
 */
export interface ObjectStore {
  /**
   * Checks, before any payment, that an object can be created.
   * @throws MgwError('output_exists') if the object exists, unless `force` is set.
   */
  checkFree(url: string, force: boolean): Promise<void>;
  /** Whether the object is this file, according to its size and checksum. */
  has(url: string, file: UploadedFile): Promise<boolean>;
  /**
   * Uploads a file, unless the object is already that file. Aborts an earlier run's unfinished uploads.
   * @throws MgwError('output_exists') if a different object exists, unless `force` is set.
   */
  put(url: string, file: UploadedFile, options: UploadOptions): Promise<void>;
  /** Returns a URL that anyone can use to read the object for an hour. */
  address(url: string): Promise<string>;
  close(): void;
}

/** The part size, in bytes. A file of up to this size is uploaded in one request. */
const defaultPartBytes = 8 * 1024 * 1024;

/**
 * Returns an object store for an S3-compatible service. Opens a client for each bucket on first use, and reads no
 * credentials before then.
 */
export function openObjectStore(
  endpoint: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
  deps: StoreDeps,
  partBytes = defaultPartBytes,
): ObjectStore {
  const clients = new Map<string, Promise<S3Client>>();
  const openClients = new Set<S3Client>();
  const existingBuckets = new Set<string>();
  const objectAt = async (url: string): Promise<S3Object> => {
    const { bucket, key } = parseObjectUrl(url);
    const opening = clients.get(bucket) ?? S3Client.open(bucket, endpoint, env, deps);
    clients.set(bucket, opening);
    const client = await opening.catch((error: unknown) => {
      // The user may add the missing credentials while a server or a program runs.
      clients.delete(bucket);
      throw error;
    });
    openClients.add(client);
    return new S3Object(client, key, url, partBytes, deps.note);
  };
  return {
    checkFree: async (url, force) => {
      const object = await objectAt(url);
      const { exists } = await object.find();
      if (exists && !force) throw object.existsError('no');
      const { bucket } = parseObjectUrl(url);
      if (!exists && !existingBuckets.has(bucket)) await object.checkBucket();
      existingBuckets.add(bucket);
    },
    has: async (url, file) => (await objectAt(url)).has(file),
    put: async (url, file, options) => (await objectAt(url)).put(file, options),
    address: async (url) => (await objectAt(url)).address(),
    close: () => openClients.forEach((client) => client.close()),
  };
}
