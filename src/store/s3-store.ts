import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { AwsV4Signer } from 'aws4fetch';
import { MgwError, usageError } from '../errors.ts';
import { bearer, type HttpRequest, type Reply } from '../exchange.ts';
import { createClient, type GatewayClient } from '../http/client.ts';
import { readWithRetries } from '../http/retry.ts';
import { printableLine } from '../printable.ts';
import { parseEndpoint, parseStoreUrl } from '../store-url.ts';
import { awsAccount, type AwsAccount } from './aws-account.ts';
import { storeError, type Store, type StoreDeps, type StoreSettings } from './store.ts';

type Env = Readonly<Record<string, string | undefined>>;

const timeoutMs = 300_000;

/**
 * Opens a store in a bucket of an S3-compatible service. The bucket is a part of the host name at AWS, and of the path at
 * any other endpoint.
 * @throws MgwError('config') if there are no credentials, or the endpoint cannot be used.
 */
export async function openS3Store(
  { url, endpoint, expiresMs }: StoreSettings & { url: string },
  env: Env,
  deps: StoreDeps,
): Promise<Store> {
  const account = await awsAccount(env);
  const { bucket, prefix } = parseStoreUrl(url);
  const base = baseOf(bucket, account.region, endpoint ?? env['AWS_ENDPOINT_URL_S3']);
  const client = createClient({ baseUrl: new URL(base.origin), key: '', userAgent: deps.userAgent });
  const object = (name: string): string => {
    const key = [...prefix.split('/').filter(Boolean), name.replace(/^sha256:/, '')];
    return `${base.origin}${base.pathname.replace(/\/$/, '')}/${key.map(encodeURIComponent).join('/')}`;
  };
  return new S3Store(client, account, object, `s3://${bucket}`, expiresMs, deps);
}

function baseOf(bucket: string, region: string, endpoint: string | undefined): URL {
  if (endpoint === undefined || endpoint === '')
    return new URL(`https://${bucket}.s3.${region}.amazonaws.com`);
  try {
    const url = parseEndpoint(endpoint);
    return new URL(`${url.href.replace(/\/$/, '')}/${bucket}`);
  } catch (error) {
    throw new MgwError('config', `The endpoint of the store: must be ${(error as Error).message}.`);
  }
}

interface Content {
  bytes: Uint8Array;
  /** MIME type */
  type: string;
}

function headersOf({ bytes, type }: Content): Record<string, string> {
  return { 'x-amz-content-sha256': createHash('sha256').update(bytes).digest('hex'), 'content-type': type };
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

class S3Store implements Store {
  readonly #client: GatewayClient;
  readonly #account: AwsAccount;
  readonly #object: (name: string) => string;
  readonly #bucket: string;
  readonly #expiresMs: number;
  readonly #deps: StoreDeps;

  constructor(
    client: GatewayClient,
    account: AwsAccount,
    object: (name: string) => string,
    bucket: string,
    expiresMs: number,
    deps: StoreDeps,
  ) {
    this.#client = client;
    this.#account = account;
    this.#object = object;
    this.#bucket = bucket;
    this.#expiresMs = expiresMs;
    this.#deps = deps;
  }

  async url(name: string, read?: () => Promise<Uint8Array>): Promise<string> {
    const url = this.#object(name);
    const found = await this.#call('HEAD', url);
    if (found.status === 404) await this.#upload(name, url, read);
    else if (found.status !== 200) throw this.#refused('look for', name, found);
    const address = new URL(url);
    address.searchParams.set('X-Amz-Expires', String(Math.round(this.#expiresMs / 1000)));
    return (await this.#signed('GET', address.href, { signQuery: true })).url.href;
  }

  close(): void {
    this.#client.close();
  }

  async #upload(name: string, url: string, read: (() => Promise<Uint8Array>) | undefined): Promise<void> {
    if (read === undefined)
      throw usageError(
        `The store ${this.#bucket} no longer has ${name}. Run the original command with the file again.`,
      );
    const stored = await this.#call('PUT', url, { bytes: await read(), type: typeOf(name) });
    if (stored.status < 200 || stored.status > 299 || stored.text.includes('<Error>'))
      throw this.#refused('upload', name, stored);
  }

  // Repeating is safe: an object's name is the hash of its content.
  async #call(method: 'HEAD' | 'PUT', url: string, content?: Content): Promise<Reply> {
    const { deadline, signal } = this.#deps;
    try {
      return await readWithRetries(async () => {
        const signed = await this.#signed(method, url, { content });
        const exchange: HttpRequest = {
          method,
          path: signed.url.pathname,
          headers: Object.fromEntries([...signed.headers].filter(([header]) => header !== 'host')),
          body: content?.bytes,
        };
        return this.#client.exchange(exchange, { auth: bearer, timeoutMs, deadline, signal });
      }, this.#deps);
    } catch (error) {
      signal.throwIfAborted();
      const words = error instanceof Error ? error.message : String(error);
      throw storeError(`The store ${this.#bucket} does not answer: ${words}.`, true, error);
    }
  }

  #signed(
    method: string,
    url: string,
    { content, signQuery }: { content?: Content | undefined; signQuery?: boolean },
  ): ReturnType<AwsV4Signer['sign']> {
    const { accessKeyId, secretAccessKey, sessionToken, region } = this.#account;
    const credentials = { accessKeyId, secretAccessKey, region, ...(sessionToken && { sessionToken }) };
    const datetime = new Date(this.#deps.clock.now()).toISOString().replace(/[:-]|\.\d{3}/g, '');
    const signer = { ...credentials, method, url, service: 's3', datetime, ...(signQuery && { signQuery }) };
    // Of an upload the signature covers the content: the service refuses bytes with another hash.
    return new AwsV4Signer(
      content === undefined ? signer : { ...signer, headers: headersOf(content) },
    ).sign();
  }

  #refused(what: string, name: string, { status, text }: Reply): MgwError {
    const [, code = ''] = /<Code>([\w.-]{1,80})<\/Code>/.exec(text) ?? [];
    const why = printableLine(code === '' ? `HTTP ${status}` : `${code} (HTTP ${status})`, 200);
    const isPassing = status === 429 || status >= 500;
    return storeError(`The store ${this.#bucket} refused to ${what} ${name}: ${why}.`, isPassing);
  }
}
