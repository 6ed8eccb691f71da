import { parseObjectUrl } from '../store-url.ts';
import { S3Client } from './s3-client.ts';
import { S3Object, type UploadedFile, type UploadOptions } from './s3-object.ts';
import type { StoreDeps } from './store.ts';

/** Results in buckets (design 17). Every method throws MgwError('store'): exit 6 if it may go away by itself, else 10. */
export interface ObjectStore {
  /**
   * Makes sure, before anything is paid, that an object can be created.
   * @throws MgwError('output_exists') if it exists, unless `force` is set.
   */
  checkFree(url: string, force: boolean): Promise<void>;
  /** Whether the object is this file, by its size and its checksum. */
  has(url: string, file: UploadedFile): Promise<boolean>;
  /**
   * Uploads a file, unless the object is that file already. Aborts what an earlier run left unfinished.
   * @throws MgwError('output_exists') if another object exists, unless `force` is set.
   */
  put(url: string, file: UploadedFile, options: UploadOptions): Promise<void>;
  /** Returns a URL by which anyone can read the object for an hour. */
  address(url: string): Promise<string>;
  close(): void;
}

/** Bytes of a part; a file that is not larger is uploaded by one request. */
const defaultPartBytes = 8 * 1024 * 1024;

/** Opens the buckets of an S3-compatible service as they are named. Reads no credentials before the first call. */
export function openObjectStore(
  endpoint: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
  deps: StoreDeps,
  partBytes = defaultPartBytes,
): ObjectStore {
  const clients = new Map<string, Promise<S3Client>>();
  const opened: S3Client[] = [];
  const objectAt = async (url: string): Promise<S3Object> => {
    const { bucket, key } = parseObjectUrl(url);
    const client = clients.get(bucket) ?? S3Client.open(bucket, endpoint, env, deps);
    if (!clients.has(bucket)) {
      clients.set(bucket, client);
      opened.push(await client);
    }
    return new S3Object(await client, key, url, partBytes, deps.note);
  };
  return {
    checkFree: async (url, force) => {
      const object = await objectAt(url);
      if ((await object.find()).exists && !force) throw object.exists('no');
    },
    has: async (url, file) => (await objectAt(url)).has(file),
    put: async (url, file, options) => (await objectAt(url)).put(file, options),
    address: async (url) => (await objectAt(url)).address(),
    close: () => opened.forEach((client) => client.close()),
  };
}
