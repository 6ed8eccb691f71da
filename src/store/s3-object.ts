import { createHash } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { MgwError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { printableLine } from '../printable.ts';
import { type S3Client, xmlText } from './s3-client.ts';
import { storeError } from './store.ts';

/** A file to upload. */
export interface UploadedFile {
  path: string;
  bytes: number;
  /** Lower-case hexadecimal. */
  sha256: string;
  mime?: string | undefined;
}

/** How a file is uploaded. */
export interface UploadOptions {
  /** Replaces an existing object. */
  force: boolean;
  /** Multipart uploads that an earlier run started for this object. */
  earlierUploads: readonly StartedUpload[];
  /** Records a multipart upload, first before it is created and again once its id is known. */
  onStarted: (upload: StartedUpload) => Promise<void>;
}

/** A multipart upload; without an id, one that was about to be created. */
export interface StartedUpload {
  id?: string | undefined;
  /** When it was about to be created, by the store's clock, ISO 8601. */
  since: string;
}

/** The maximum number of attempts to send content if the store reports another checksum. */
const maxTries = 3;

/** How long the URL of an object is valid. */
const urlValidMs = 3_600_000;

const checksumHeader = 'x-amz-meta-sha256';

interface ObjectStatus {
  exists: boolean;
  bytes: number;
  sha256?: string | undefined;
  /** The time by the store's clock, ISO 8601. */
  now: string;
}

/** An object of a bucket. Its methods throw the errors of `ObjectStore`. */
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
      now: new Date(Number.isNaN(time) ? Date.now() : time).toISOString(),
    };
  }

  async has(file: UploadedFile): Promise<boolean> {
    return isSame(await this.find(), file);
  }

  address(): Promise<string> {
    return this.#client.presigned(this.#key, urlValidMs);
  }

  existsError(charged: 'no' | 'yes'): MgwError {
    const text = `${this.#displayUrl} exists: use another object, or replace it with --force.`;
    return new MgwError('output_exists', text, { charged, retry: charged === 'no' ? 'safe' : 'resume' });
  }

  async put(file: UploadedFile, options: UploadOptions): Promise<void> {
    const current = await this.find();
    if (options.earlierUploads.length > 0) await this.#abort(options.earlierUploads);
    if (isSame(current, file)) return;
    if (current.exists && !options.force) throw this.existsError('yes');
    const content = await open(file.path, 'r');
    try {
      if (file.bytes <= this.#partBytes) await this.#putInOneRequest(file, content, options.force);
      else await this.#putParts(file, content, current.now, options);
    } finally {
      await content.close();
    }
  }

  async #putInOneRequest(file: UploadedFile, content: FileHandle, force: boolean): Promise<void> {
    const body = await readPiece(content, 0, file.bytes);
    const headers = { ...headersOf(file), 'content-md5': md5(body, 'base64') };
    // Content that this run stored incorrectly is replaced.
    const reply = await sendUntilEqual(body, this.#displayUrl, this.#note, (isAgain) =>
      this.#sendConditionally(force || isAgain, (condition) =>
        this.#client.call({ method: 'PUT', key: this.#key, headers: { ...headers, ...condition }, body }),
      ),
    );
    await this.#checkOutcome(reply, file, force);
  }

  async #putParts(
    file: UploadedFile,
    content: FileHandle,
    since: string,
    { force, onStarted }: UploadOptions,
  ): Promise<void> {
    await onStarted({ since });
    const created = await this.#client.call({
      method: 'POST',
      key: this.#key,
      query: { uploads: '' },
      headers: headersOf(file),
    });
    const id = xmlText(created.text, 'UploadId');
    if (created.status !== 200 || id === undefined)
      throw this.#client.refusedError('begin the upload of', this.#key, created);
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

  // The store's checksum of each part is compared before the upload is completed.
  async #part(id: string, number: number, body: Uint8Array): Promise<string> {
    const query = { partNumber: String(number), uploadId: id };
    const headers = { 'content-md5': md5(body, 'base64') };
    const reply = await sendUntilEqual(body, `part ${number} of ${this.#displayUrl}`, this.#note, () =>
      this.#client.call({ method: 'PUT', key: this.#key, query, headers, body }),
    );
    const { etag = '' } = reply.headers;
    if (reply.status !== 200 || etag === '')
      throw this.#client.refusedError('store a part of', this.#key, reply);
    return etag;
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
      // The response may be lost although the object is complete.
      if (await this.has(file)) return;
      throw error;
    }
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

  // An earlier attempt may have succeeded although its response was lost.
  async #checkOutcome(reply: Reply, file: UploadedFile, force: boolean): Promise<void> {
    if (reply.status >= 200 && reply.status < 300) return;
    const current = await this.find();
    if (isSame(current, file)) return;
    if (current.exists && !force && (reply.status === 412 || reply.status === 409))
      throw this.existsError('yes');
    throw this.#client.refusedError('store', this.#key, reply);
  }

  // A service that cannot list uploads is accepted: uploads with known ids are still aborted.
  async #abort(started: readonly StartedUpload[]): Promise<void> {
    const ids = new Set(started.flatMap(({ id }) => id ?? []));
    const last = started.at(-1);
    if (last !== undefined && last.id === undefined)
      for (const { id, initiated } of await this.#uploads())
        if (initiated >= Date.parse(last.since)) ids.add(id);
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

function isSame({ exists, bytes, sha256 }: ObjectStatus, file: UploadedFile): boolean {
  return exists && bytes === file.bytes && sha256 === file.sha256;
}

/**
 * Sends content until the store's checksum matches, at most three times.
 * @param send makes one request with Content-MD5; `isAgain` if the checksum of the previous attempt did not match
 * @throws MgwError('store'), exit 6, if the checksum was wrong each time.
 */
export async function sendUntilEqual(
  body: Uint8Array,
  name: string,
  note: (text: string) => void,
  send: (isAgain: boolean) => Promise<Reply>,
): Promise<Reply> {
  for (let tries = 1; ; tries += 1) {
    const reply = await send(tries > 1);
    if (!isChecksumWrong(reply, body)) return reply;
    if (tries === maxTries) throw storeError(`The checksum of ${name} was wrong ${tries} times.`, true);
    note(`The checksum of ${name} is wrong; sending it again.`);
  }
}

// If the service encrypts with its own key, the ETag is not an MD5; the service has then checked Content-MD5.
function isChecksumWrong({ status, headers, text }: Reply, body: Uint8Array): boolean {
  if (status > 299) return status === 400 && /Digest|Mismatch/.test(xmlText(text, 'Code') ?? '');
  const etag = (headers['etag'] ?? '').replaceAll('"', '').toLowerCase();
  const isMd5 =
    /^[\da-f]{32}$/.test(etag) &&
    !/kms/.test(headers['x-amz-server-side-encryption'] ?? '') &&
    headers['x-amz-server-side-encryption-customer-algorithm'] === undefined;
  return isMd5 && etag !== md5(body, 'hex');
}

/** Returns the MD5 of some content, which S3 accepts in Base64 and returns in hexadecimal. */
export function md5(body: Uint8Array, encoding: 'hex' | 'base64'): string {
  return createHash('md5').update(body).digest(encoding);
}

async function readPiece(file: FileHandle, at: number, length: number): Promise<Uint8Array> {
  const bytes = Buffer.alloc(length);
  for (let filled = 0; filled < length;) {
    const { bytesRead } = await file.read(bytes, filled, length - filled, at + filled);
    if (bytesRead === 0) throw new Error('the file became shorter while it was uploaded');
    filled += bytesRead;
  }
  return bytes;
}
