import { open, type FileHandle } from 'node:fs/promises';
import { MgwError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { printableLine } from '../printable.ts';
import { type S3Client, xmlText } from './s3-client.ts';
import { isContradicted, md5, sendUntilStored } from './store.ts';

/** A file to upload. */
export interface UploadedFile {
  path: string;
  bytes: number;
  /** The SHA-256 hash, in lower-case hexadecimal. */
  sha256: string;
  mime?: string | undefined;
}

/** Options for uploading a file. */
export interface UploadOptions {
  /** Whether to replace an existing object. */
  force: boolean;
  /** Multipart uploads that an earlier run started for this object. */
  earlierUploads: readonly StartedUpload[];
  /** Records a multipart upload, both before it is created and once its id is known. */
  onStarted: (upload: StartedUpload) => Promise<void>;
}

/** A multipart upload. Without an id, the upload may not have been created. */
export interface StartedUpload {
  id?: string | undefined;
  /** The time just before the upload was created, by the store's clock, in ISO 8601. */
  since: string;
}

/** The validity of an object's URL, in ms. */
const urlValidMs = 3_600_000;

const checksumHeader = 'x-amz-meta-sha256';
const md5Header = 'x-amz-meta-md5';

interface ObjectStatus {
  exists: boolean;
  bytes: number;
  sha256?: string | undefined;
  /** Whether the service's MD5 differs from the MD5 that mgw computed before the upload. */
  isCorrupt: boolean;
  /** The time by the store's clock, in ISO 8601. */
  now: string;
}

/** An object in a bucket. Its methods throw the errors of `ObjectStore`. */
export class S3Object {
  readonly #client: S3Client;
  readonly #key: string;
  readonly #displayUrl: string;
  readonly #partBytes: number;
  readonly #note: (text: string) => void;

  constructor(client: S3Client, key: string, url: string, partBytes: number, note: (text: string) => void) {
    this.#client = client;
    this.#key = key;
    this.#displayUrl = printableLine(url, 300);
    this.#partBytes = partBytes;
    this.#note = note;
  }

  async find(): Promise<ObjectStatus> {
    const reply = await this.#client.call({ method: 'HEAD', key: this.#key });
    if (reply.status !== 200 && reply.status !== 404)
      throw this.#client.refusedError('look for', this.#key, reply);
    const { headers } = reply;
    const time = Date.parse(headers['date'] ?? '');
    return {
      exists: reply.status === 200,
      bytes: Number(headers['content-length'] ?? -1),
      sha256: headers[checksumHeader],
      isCorrupt: isContradicted(headers, headers[md5Header]),
      now: new Date(Number.isNaN(time) ? Date.now() : time).toISOString(),
    };
  }

  async has(file: UploadedFile): Promise<boolean> {
    return isSame(await this.find(), file);
  }

  address(): Promise<string> {
    return this.#client.presigned(this.#key, urlValidMs);
  }

  /**
   * Checks that the bucket exists, for an object that does not exist. A response to HEAD does not contain the reason.
   * @throws MgwError('store'), exit 10, if the bucket does not exist.
   */
  async checkBucket(): Promise<void> {
    const reply = await this.#client.call({ method: 'GET', key: this.#key, headers: { range: 'bytes=0-0' } });
    if (xmlText(reply.text, 'Code') === 'NoSuchBucket')
      throw this.#client.refusedError('look for', this.#key, reply);
  }

  existsError(charged: 'no' | 'yes'): MgwError {
    const text = `${this.#displayUrl} exists: use another object, or replace it with --force.`;
    return new MgwError('output_exists', text, { charged, retry: charged === 'no' ? 'safe' : 'resume' });
  }

  async put(file: UploadedFile, options: UploadOptions): Promise<void> {
    const current = await this.find();
    if (options.earlierUploads.length > 0) await this.#abort(options.earlierUploads);
    if (isSame(current, file)) return;
    // An object with this file's checksum but different content is a corrupt upload from mgw.
    const force = options.force || current.sha256 === file.sha256;
    if (current.exists && !force) throw this.existsError('yes');
    const content = await open(file.path, 'r');
    try {
      if (file.bytes <= this.#partBytes) await this.#putInOneRequest(file, content, force);
      else await this.#putParts(file, content, current.now, { ...options, force });
    } finally {
      await content.close();
    }
  }

  async #putInOneRequest(file: UploadedFile, content: FileHandle, force: boolean): Promise<void> {
    const body = await readPiece(content, 0, file.bytes);
    const headers = {
      ...headersOf(file),
      [md5Header]: md5(body, 'hex'),
      'content-md5': md5(body, 'base64'),
    };
    const put = (isCorrupt: boolean): Promise<Reply> =>
      // Replaces content that this run stored incorrectly.
      this.#sendConditionally(force || isCorrupt, (condition) =>
        this.#client.call({ method: 'PUT', key: this.#key, headers: { ...headers, ...condition }, body }),
      );
    const reply = await sendUntilStored(body, this.#displayUrl, this.#note, put, () => this.has(file)).catch(
      async (error: unknown) => {
        await this.#removeCorrupt(file).catch(() => undefined);
        throw error;
      },
    );
    await this.#checkOutcome(reply, file, force);
  }

  async #removeCorrupt(file: UploadedFile): Promise<void> {
    const found = await this.find();
    if (found.sha256 === file.sha256 && !isSame(found, file))
      await this.#client.call({ method: 'DELETE', key: this.#key });
  }

  async #putParts(
    file: UploadedFile,
    content: FileHandle,
    since: string,
    { force, onStarted }: UploadOptions,
  ): Promise<void> {
    await onStarted({ since });
    let attempts = 0;
    const created = await this.#client.call({
      method: 'POST',
      key: this.#key,
      query: { uploads: '' },
      headers: headersOf(file),
      onAttempt: () => (attempts += 1),
    });
    const id = xmlText(created.text, 'UploadId');
    if (created.status !== 200 || id === undefined)
      throw this.#client.refusedError('begin the upload of', this.#key, created);
    // An attempt whose response was lost may have created an upload too.
    if (attempts > 1) await this.#abort([{ since }], id);
    await onStarted({ id, since });
    try {
      const etags: string[] = [];
      for (let at = 0; at < file.bytes; at += this.#partBytes)
        etags.push(
          await this.#part(
            id,
            etags.length + 1,
            await readPiece(content, at, Math.min(this.#partBytes, file.bytes - at)),
          ),
        );
      // Check again, because some services ignore the condition when an upload is completed.
      const current = await this.find();
      if (current.exists && !force && !isSame(current, file)) throw this.existsError('yes');
      await this.#complete(id, etags, file, force);
    } catch (error) {
      await this.#abort([{ id, since }]).catch(() => undefined);
      throw error;
    }
  }

  // Uploads a part. The store's checksum is compared before the whole upload is completed.
  async #part(id: string, number: number, body: Uint8Array): Promise<string> {
    const query = { partNumber: String(number), uploadId: id };
    const headers = { 'content-md5': md5(body, 'base64') };
    const reply = await sendUntilStored(
      body,
      `part ${number} of ${this.#displayUrl}`,
      this.#note,
      () => this.#client.call({ method: 'PUT', key: this.#key, query, headers, body }),
      () => Promise.resolve(false),
    );
    if (reply.status !== 200) throw this.#client.refusedError('store a part of', this.#key, reply);
    return reply.headers['etag'] ?? '';
  }

  async #complete(id: string, etags: readonly string[], file: UploadedFile, force: boolean): Promise<void> {
    const parts = etags.map(
      (etag, index) =>
        `<Part><PartNumber>${index + 1}</PartNumber><ETag>${etag.replace(/[<>&]/g, '')}</ETag></Part>`,
    );
    const body = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
    const complete = (condition: Record<string, string>): Promise<Reply> =>
      this.#client.call({
        method: 'POST',
        key: this.#key,
        query: { uploadId: id },
        headers: { 'content-type': 'application/xml', ...condition },
        body,
      });
    let reply: Reply;
    try {
      reply = await this.#sendConditionally(force, complete);
    } catch (error) {
      // The object may be complete even if the response was lost.
      if (await this.has(file)) return;
      throw error;
    }
    if (
      reply.status < 300 &&
      !reply.text.includes('CompleteMultipartUploadResult') &&
      !(await this.has(file))
    )
      throw this.#client.refusedError('complete the upload of', this.#key, reply);
    await this.#checkOutcome(reply, file, force);
  }

  async #sendConditionally(
    force: boolean,
    send: (condition: Record<string, string>) => Promise<Reply>,
  ): Promise<Reply> {
    const reply = await send(force ? {} : { 'if-none-match': '*' });
    if (reply.status !== 501 || force) return reply;
    this.#note(
      `The store s3://${this.#client.bucket} does not support conditional writes: two runs may write the same object.`,
    );
    return send({});
  }

  // Throws if the upload failed. An earlier attempt may have succeeded even if its response was lost.
  async #checkOutcome(reply: Reply, file: UploadedFile, force: boolean): Promise<void> {
    if (reply.status >= 200 && reply.status < 300) return;
    const current = await this.find();
    if (isSame(current, file)) return;
    if (current.exists && !force && (reply.status === 412 || reply.status === 409))
      throw this.existsError('yes');
    throw this.#client.refusedError('store', this.#key, reply);
  }

  // Aborts uploads, except the current one. If a service cannot list uploads, only those with known ids are aborted.
  async #abort(started: readonly StartedUpload[], currentId = ''): Promise<void> {
    const ids = new Set(started.flatMap(({ id }) => id ?? []));
    const last = started.at(-1);
    if (last !== undefined && last.id === undefined)
      for (const { id, initiated } of await this.#uploads())
        if (initiated >= Date.parse(last.since)) ids.add(id);
    ids.delete(currentId);
    for (const uploadId of ids)
      await this.#client.call({ method: 'DELETE', key: this.#key, query: { uploadId } });
  }

  async #uploads(): Promise<{ id: string; initiated: number }[]> {
    const query = { uploads: '', prefix: this.#key };
    const { status, text } = await this.#client.call({ method: 'GET', key: '', query });
    if (status !== 200) return [];
    const entries = text.split('<Upload>').slice(1);
    const uploads = entries.map((xml) => ({
      key: xmlText(xml, 'Key'),
      id: xmlText(xml, 'UploadId') ?? '',
      initiated: Date.parse(xmlText(xml, 'Initiated') ?? ''),
    }));
    return uploads.filter(({ key, id }) => key === this.#key && id !== '');
  }
}

function headersOf({ sha256, mime }: UploadedFile): Record<string, string> {
  return { 'content-type': mime ?? 'application/octet-stream', [checksumHeader]: sha256 };
}

function isSame({ exists, bytes, sha256, isCorrupt }: ObjectStatus, file: UploadedFile): boolean {
  return exists && bytes === file.bytes && sha256 === file.sha256 && !isCorrupt;
}

async function readPiece(file: FileHandle, at: number, length: number): Promise<Uint8Array> {
  const bytes = Buffer.alloc(length);
  for (let filled = 0; filled < length;) {
    const { bytesRead } = await file.read(bytes, filled, length - filled, at + filled);
    if (bytesRead === 0) throw new Error('the file shrank during the upload');
    filled += bytesRead;
  }
  return bytes;
}
