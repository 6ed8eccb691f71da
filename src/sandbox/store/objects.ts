import { createHash, randomBytes } from 'node:crypto';
import { linkSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isObject, listFolder, parseJson, writeWhole } from '../state.ts';

/** An object without its content. */
interface ObjectHead {
  bucket: string;
  key: string;
  /** The headers to return with the object: the media type and metadata. */
  headers: Record<string, string>;
  bytes: number;
  /** The entity tag, including its quotation marks. */
  etag: string;
  /** The modification time, in ms since 1970. */
  modified: number;
}

/** A multipart upload that is neither completed nor aborted. */
export interface Upload extends Pick<ObjectHead, 'bucket' | 'key' | 'headers'> {
  id: string;
  /** The time at which the upload began, in ms since 1970. */
  begun: number;
}

/**
 * The objects and uploads in a state folder. Each is a file with a line of JSON, followed by the content. Several
 * processes can use them at the same time.
 */
export class Objects {
  readonly #objects: string;
  readonly #uploads: string;

  constructor(stateDir: string) {
    this.#objects = join(stateDir, 'store', 'objects');
    this.#uploads = join(stateDir, 'store', 'uploads');
  }

  /** Returns an object; undefined if the object does not exist. */
  read(bucket: string, key: string): { head: ObjectHead; content: Buffer } | undefined {
    const parts = readParts(this.#path(bucket, key));
    return isHead(parts?.head) ? { head: parts.head, content: parts.content } : undefined;
  }

  /** Returns a bucket's objects whose keys begin with a prefix, sorted by key. */
  list(bucket: string, prefix: string): ObjectHead[] {
    const folder = join(this.#objects, bucket);
    const heads = listFolder(folder).map((name) => readParts(join(folder, name))?.head);
    const matches = heads.filter(isHead).filter(({ key }) => key.startsWith(prefix));
    return matches.sort((one, other) => (one.key < other.key ? -1 : 1));
  }

  /** Stores an object. Returns false if the object exists and must not be replaced. */
  write(head: ObjectHead, content: Uint8Array, mayReplace: boolean): boolean {
    const path = this.#path(head.bucket, head.key);
    const bytes = serialize(head, content);
    if (mayReplace) {
      writeWhole(path, bytes);
      return true;
    }
    const draft = `${path}.${randomBytes(6).toString('hex')}.new`;
    writeWhole(draft, bytes);
    try {
      linkSync(draft, path);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    } finally {
      rmSync(draft, { force: true });
    }
  }

  remove(bucket: string, key: string): void {
    rmSync(this.#path(bucket, key), { force: true });
  }

  begin(upload: Omit<Upload, 'id'>): string {
    const id = randomBytes(16).toString('hex');
    writeWhole(join(this.#uploads, id, 'about'), serialize({ ...upload, id }, Buffer.alloc(0)));
    return id;
  }

  /** Returns a multipart upload for an object; undefined if the upload does not exist. */
  upload(id: string, bucket: string, key: string): Upload | undefined {
    return this.uploads(bucket).find((upload) => upload.id === id && upload.key === key);
  }

  uploads(bucket: string): Upload[] {
    const uploads = listFolder(this.#uploads).map((id) => readParts(join(this.#uploads, id, 'about'))?.head);
    return uploads.filter(isUpload).filter((upload) => upload.bucket === bucket);
  }

  writePart({ id }: Upload, number: number, content: Uint8Array): void {
    writeWhole(join(this.#uploads, id, String(number)), content);
  }

  /** Returns a part of an upload; undefined if the part does not exist. */
  part({ id }: Upload, number: number): Buffer | undefined {
    return readBytes(join(this.#uploads, id, String(number)));
  }

  abort({ id }: Upload): void {
    rmSync(join(this.#uploads, id), { recursive: true, force: true });
  }

  #path(bucket: string, key: string): string {
    return join(this.#objects, bucket, createHash('sha256').update(key).digest('hex'));
  }
}

function serialize(head: object, content: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), content]);
}

function readParts(path: string): { head: unknown; content: Buffer } | undefined {
  const bytes = /\.(new|tmp)$/.test(path) ? undefined : readBytes(path);
  if (bytes === undefined) return undefined;
  const end = bytes.indexOf('\n');
  return { head: parseJson(bytes.toString('utf8', 0, end)), content: bytes.subarray(end + 1) };
}

function readBytes(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function isHead(value: unknown): value is ObjectHead {
  return isObject(value) && typeof value.key === 'string' && typeof value.etag === 'string';
}

function isUpload(value: unknown): value is Upload {
  return isObject(value) && typeof value.key === 'string' && typeof value.id === 'string';
}
