import { hash } from 'node:crypto';
import { AwsV4Signer } from 'aws4fetch';
import { MgwError, messageOf, systemCode } from '../errors.ts';
import { bearer, type HttpRequest, type Reply } from '../exchange.ts';
import { createClient, type GatewayClient } from '../http/client.ts';
import { readWithRetries } from '../http/retry.ts';
import { homeFolder } from '../installation.ts';
import { printableLine } from '../printable.ts';
import { storeEndpoint } from '../store-url.ts';
import { storeError, type StoreDeps } from './store.ts';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';

type Env = Readonly<Record<string, string | undefined>>;

const timeoutMs = 300_000;

/** The validity, in ms, of URLs signed with temporary credentials whose expiry is unknown. */
const temporaryValidityMs = 3_600_000;

// The minimum validity of a URL, in ms: the gateway may need this long to fetch it.
const minValidMs = 60_000;

/** One request to a bucket. */
interface S3Request {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  /** The object's key; '' for the bucket itself. */
  key: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Uint8Array | string;
  /** Called before each attempt. */
  onAttempt?: () => void;
}

/** Makes calls to one bucket of an S3-compatible service, signed with AWS Signature Version 4. */
export class S3Client {
  readonly #client: GatewayClient;
  #account: AwsAccount;
  readonly #base: URL;
  readonly #deps: StoreDeps;
  #hasNotedShortValidity = false;

  private constructor(
    readonly bucket: string,
    base: URL,
    account: AwsAccount,
    private readonly env: Env,
    deps: StoreDeps,
  ) {
    this.#client = createClient({ baseUrl: new URL(base.origin), key: '', userAgent: deps.userAgent });
    this.#account = account;
    this.#base = base;
    this.#deps = deps;
  }

  /**
   * Opens a bucket. On AWS, the bucket is part of the host name. At any other endpoint, it is part of the path.
   * @throws MgwError('config') if there are no credentials, or the endpoint cannot be used.
   */
  static async open(
    bucket: string,
    endpoint: string | undefined,
    env: Env,
    deps: StoreDeps,
  ): Promise<S3Client> {
    const account = await awsAccount(env);
    const base = bucketUrl(bucket, account.region, endpoint ?? env['AWS_ENDPOINT_URL_S3'], deps.allowHttp);
    return new S3Client(bucket, base, account, env, deps);
  }

  /**
   * Makes a request that may be repeated. Retries after 429, 5xx, a 200 with an error inside, and a 409 caused by a
   * concurrent write to the same object. If the credentials have expired, reads them again, because another program may
   * have renewed them.
   * @returns the last response. For a 200 with an error inside, or a 409 caused by a concurrent write, its status is
   * changed to 500.
   * @throws MgwError('store'), exit 6, if no response arrived.
   */
  async call(request: S3Request): Promise<Reply> {
    const { sessionToken } = this.#account;
    const reply = await this.#send(request);
    if (reply.status < 400 || !expiredCodes.test(xmlText(reply.text, 'Code') ?? '')) return reply;
    this.#account = await awsAccount(this.env);
    return this.#account.sessionToken === sessionToken ? reply : this.#send(request);
  }

  async #send(request: S3Request): Promise<Reply> {
    const { method, key, query = {}, body } = request;
    const { deadline, signal } = this.#deps;
    this.#checkExpiry(0);
    const url = new URL(this.#url(key));
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const headers = { 'x-amz-content-sha256': hash('sha256', body ?? ''), ...request.headers };
    const isFailure = ({ status, text }: Reply): boolean =>
      (status < 300 && text.includes('<Error>')) ||
      (status === 409 && xmlText(text, 'Code') === 'ConditionalRequestConflict');
    const note = (text: string): void => this.#deps.note(`s3://${this.bucket}: ${text}`);
    const retryDeps = { ...this.#deps, note, isFailure };
    let reply: Reply;
    try {
      reply = await readWithRetries(async () => {
        request.onAttempt?.();
        const signed = await this.#signed(method, url.href, headers);
        const exchange: HttpRequest = {
          method,
          path: signed.url.pathname + signed.url.search,
          headers: Object.fromEntries([...signed.headers].filter(([header]) => header !== 'host')),
          body,
        };
        const reply = await this.#client.exchange(exchange, { auth: bearer, timeoutMs, deadline, signal });
        if (reply.status === 501) throw new UnsupportedRequest(reply);
        return reply;
      }, retryDeps);
      if (isFailure(reply)) reply = { ...reply, status: 500 };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnsupportedRequest) return error.reply;
      throw storeError(`The store s3://${this.bucket} does not respond: ${messageOf(error)}.`, true, error);
    }
    if (method !== 'HEAD' || ![301, 307, 400, 403].includes(reply.status)) return reply;
    // A response to HEAD has no body, so only a GET reveals the reason.
    const getReply = await this.#send({ ...request, method: 'GET', headers: { range: 'bytes=0-0' } });
    return getReply.status === reply.status ? getReply : reply;
  }

  /**
   * Returns a URL that anyone can use to read an object for a limited time. With temporary credentials, that time may
   * be shorter than `expiresMs`. A note reports this once.
   * @throws MgwError('store'), exit 10, if the credentials expire within a minute.
   */
  async presigned(key: string, expiresMs: number): Promise<string> {
    const { sessionToken, expiresAt } = this.#account;
    const { clock, note } = this.#deps;
    this.#checkExpiry(minValidMs);
    const remainingMs = expiresAt === undefined ? temporaryValidityMs : expiresAt - clock.now();
    const validMs = sessionToken === undefined ? expiresMs : Math.min(expiresMs, remainingMs);
    if (validMs < expiresMs && !this.#hasNotedShortValidity) {
      this.#hasNotedShortValidity = true;
      const minutes = Math.ceil(validMs / 60_000);
      note(`The credentials for the store are temporary: its URLs are valid for at most ${minutes} minutes.`);
    }
    const url = new URL(this.#url(key));
    url.searchParams.set('X-Amz-Expires', String(Math.floor(validMs / 1000)));
    return (await this.#signed('GET', url.href)).url.href;
  }

  /** Returns the error for a refused request. `operation` is the requested operation, such as `upload`. */
  refusedError(operation: string, name: string, { status, text, headers }: Reply): MgwError {
    const code = xmlText(text, 'Code') ?? '';
    const words = status < 300 ? `the response (HTTP ${status}) is not from S3` : `HTTP ${status}`;
    const reason = printableLine(code === '' ? words : `${code} (HTTP ${status})`, 200);
    // `NoSuchUpload` is temporary, because the next run starts a new upload.
    const isTemporary = status === 429 || status >= 500 || status < 300 || code === 'NoSuchUpload';
    const minutesOff = Math.round((this.#deps.clock.now() - Date.parse(headers['date'] ?? '')) / 60_000);
    const isSkewed = code === 'RequestTimeTooSkewed' || (status === 403 && Math.abs(minutesOff) >= 15);
    const region = headers['x-amz-bucket-region'] ?? xmlText(text, 'Region');
    const isElsewhere =
      [301, 307, 400].includes(status) &&
      region !== this.#account.region &&
      /^[a-z\d-]{1,40}$/.test(region ?? '');
    const host = xmlText(text, 'Endpoint') ?? headers['location']?.split('/')[2];
    const advice = isElsewhere
      ? ` The bucket is in the region ${region}, not in ${this.#account.region}. Set the region: export AWS_REGION=${region}`
      : (status === 301 || status === 307) && host !== undefined
        ? ` The bucket is served by ${printableLine(host, 200)}.`
        : isSkewed
          ? ` The clock of this machine differs from the store's${minutesOff ? ` by ${Math.abs(minutesOff)} minutes` : ''}: set the clock.`
          : expiredCodes.test(code)
            ? ' The credentials have expired: renew them.'
            : '';
    const error = storeError(
      `The store s3://${this.bucket} refused to ${operation} ${name}: ${reason}.${advice}`,
      isTemporary,
    );
    return isElsewhere ? error.with({ next: ['export', `AWS_REGION=${region}`] }) : error;
  }

  close(): void {
    this.#client.close();
  }

  #checkExpiry(validMs: number): void {
    const leftMs = (this.#account.expiresAt ?? Infinity) - this.#deps.clock.now();
    if (leftMs > validMs) return;
    const text = leftMs > 0 ? 'expire within a minute' : 'have expired';
    throw storeError(`The credentials for the store s3://${this.bucket} ${text}: renew them.`, false);
  }

  #url(key: string): string {
    // Encode the path as the signature does, because not every service encodes it again before comparing signatures.
    const path = encodeURIComponent(key)
      .replaceAll('%2F', '/')
      .replace(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
    return `${this.#base.origin}${this.#base.pathname.replace(/\/$/, '')}/${path}`;
  }

  // Signs a request. Without `headers`, the signature is added to the query.
  #signed(method: string, url: string, headers?: Record<string, string>): ReturnType<AwsV4Signer['sign']> {
    const { accessKeyId, secretAccessKey, sessionToken, region } = this.#account;
    const credentials = { accessKeyId, secretAccessKey, region, ...(sessionToken && { sessionToken }) };
    const datetime = new Date(this.#deps.clock.now()).toISOString().replace(/[:-]|\.\d{3}/g, '');
    const signingTarget = headers === undefined ? { signQuery: true } : { headers };
    return new AwsV4Signer({ ...credentials, method, url, service: 's3', datetime, ...signingTarget }).sign();
  }
}

const expiredCodes = /^(ExpiredToken|TokenRefreshRequired|RequestExpired)/;

/** Thrown for a 501, which services return for a header that they do not support. A 501 is not retried. */
class UnsupportedRequest extends Error {
  constructor(readonly reply: Reply) {
    super('not implemented');
  }
}

/** Returns the decoded text of the first `name` element in an XML response; undefined if there is none. */
export function xmlText(xml: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>([^<]{0,2000})</${name}>`).exec(xml)?.[1];
  return text?.replace(
    /&(?:(lt|gt|quot|apos|amp)|#(\d{1,6}));/g,
    (_, entity: string, code: string) => entities[entity] ?? String.fromCodePoint(Number(code)),
  );
}

const entities: Record<string, string> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };

function bucketUrl(bucket: string, region: string, endpoint: string | undefined, allowHttp: boolean): URL {
  if (endpoint === undefined || endpoint === '')
    return new URL(`https://${bucket}.s3.${region}.amazonaws.com`);
  return new URL(`${storeEndpoint(endpoint, allowHttp).href.replace(/\/$/, '')}/${bucket}`);
}

/** The credentials and region for an S3-compatible service. */
interface AwsAccount {
  accessKeyId: string;
  secretAccessKey: string;
  /** Present only for temporary credentials. */
  sessionToken?: string | undefined;
  /** The time at which temporary credentials expire, in ms since 1970, if known. */
  expiresAt?: number | undefined;
  region: string;
}

/**
 * Reads the credentials and region from the standard AWS variables, or else from the standard AWS files (design 17).
 * @throws MgwError('config'), exit 2, if there are no credentials; the message never contains a value.
 */
async function awsAccount(env: Env): Promise<AwsAccount> {
  const [accessKey, secretKey] = [env['AWS_ACCESS_KEY_ID'], env['AWS_SECRET_ACCESS_KEY']];
  const configuredRegion = env['AWS_REGION'] || env['AWS_DEFAULT_REGION'];
  const sessionToken = env['AWS_SESSION_TOKEN'] || undefined;
  const expiry = Date.parse(env['AWS_CREDENTIAL_EXPIRATION'] ?? '');
  const expiresAt = sessionToken === undefined || Number.isNaN(expiry) ? undefined : expiry;
  const accountOfEnv = accessKey &&
    secretKey && { accessKeyId: accessKey, secretAccessKey: secretKey, sessionToken, expiresAt };
  if (accountOfEnv && configuredRegion) return { ...accountOfEnv, region: configuredRegion };
  const profile = env['AWS_PROFILE'] || 'default';
  // An empty HOME must not lead to the current folder.
  const folder = join(env['HOME'] || homeFolder() || '/', '.aws');
  const [credentials, config] = await Promise.all([
    section(env['AWS_SHARED_CREDENTIALS_FILE'] || join(folder, 'credentials'), [profile]),
    section(env['AWS_CONFIG_FILE'] || join(folder, 'config'), [`profile ${profile}`, profile]),
  ]);
  const region = configuredRegion || config['region'] || 'us-east-1';
  if (accountOfEnv) return { ...accountOfEnv, region };
  const [sharedKey, sharedSecret] = [credentials['aws_access_key_id'], credentials['aws_secret_access_key']];
  if (sharedKey && sharedSecret)
    return {
      accessKeyId: sharedKey,
      secretAccessKey: sharedSecret,
      sessionToken: credentials['aws_session_token'],
      region,
    };
  throw new MgwError(
    'config',
    `There are no credentials for the store. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to the profile ${profile} of ~/.aws/credentials.`,
    { next: ['mgw', 'config', 'get', 'store'] },
  );
}

// Returns the first of the named sections that a file in AWS's INI format contains; otherwise an empty object.
async function section(path: string, names: readonly string[]): Promise<Record<string, string>> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return '';
    throw new MgwError('config', `Cannot read ${path}: ${messageOf(error)}.`);
  });
  const sections = new Map<string, Record<string, string>>();
  let values: Record<string, string> = {};
  for (const line of text.split(/\r?\n/)) {
    const [, name] = /^\s*\[([^\]]+)\]/.exec(line) ?? [];
    if (name !== undefined) sections.set(name.trim(), (values = {}));
    const [, key = '', value = ''] = /^\s*([\w-]+)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    if (key !== '') values[key] = value;
  }
  return names.map((name) => sections.get(name)).find((values) => values !== undefined) ?? {};
}
