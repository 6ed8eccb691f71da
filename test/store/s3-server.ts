import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { User } from '../support/cli.ts';

/** A store that checks every signature with its own implementation of AWS Signature Version 4. */
export interface S3Server {
  url: string;
  /** The objects' contents, by path. */
  objects: Map<string, Buffer>;
  /** The headers stored with each object, by path. */
  metadata: Map<string, Record<string, string>>;
  /** The time at which each object was stored, in ISO 8601, by path. The default is now. */
  modified: Map<string, string>;
  /** The maximum number of objects on a page of a listing. */
  pageSize: number;
  /** The calls so far with their response statuses, such as `PUT /bucket/key 200`. */
  calls: string[];
  /** The multipart uploads that are neither completed nor aborted, by id. */
  uploads: Map<string, { path: string; headers: IncomingHttpHeaders; parts: Map<number, Buffer> }>;
  /**
   * Handlers for the next requests. If a handler returns false, the server responds to the request, and the handler
   * also receives the next one.
   */
  faults: ((request: IncomingMessage, response: ServerResponse) => unknown)[];
  /** Returns the content at a presigned URL, or the status of the refusal. */
  get(url: string): Promise<Buffer | number>;
}

export const account = { AWS_ACCESS_KEY_ID: 'AKIDSTORE', AWS_SECRET_ACCESS_KEY: 'store-secret-4711' };

export async function s3Server(): Promise<S3Server> {
  const objects = new Map<string, Buffer>();
  const metadata: S3Server['metadata'] = new Map();
  const uploads: S3Server['uploads'] = new Map();
  const calls: string[] = [];
  const faults: S3Server['faults'] = [];
  const modified: S3Server['modified'] = new Map();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const fault = faults[0];
      if (fault === undefined || fault(request, response) === false)
        answer(request, Buffer.concat(chunks), response);
      else faults.shift();
    });
  });
  const answer = (request: IncomingMessage, body: Buffer, response: ServerResponse): void => {
    const { pathname, searchParams: query } = new URL(request.url ?? '', 'http://store');
    const end = (status: number, content?: Buffer | string, headers = {}): void => {
      calls.push(`${request.method ?? ''} ${pathname} ${status}`);
      response.writeHead(status, {
        'content-length': content === undefined ? 0 : Buffer.byteLength(content),
        ...headers,
      });
      response.end(request.method === 'HEAD' ? undefined : content);
    };
    if (!isSigned(request)) {
      end(403, '<Error><Code>SignatureDoesNotMatch</Code></Error>');
    } else if (query.has('uploads') || query.has('uploadId')) {
      multipart(request, body, pathname, query, end);
    } else if (query.get('list-type') === '2') {
      end(200, listing(pathname, query));
    } else if (request.method === 'DELETE') {
      objects.delete(pathname);
      end(204);
    } else if (
      request.method === 'PUT' &&
      request.headers['if-none-match'] === '*' &&
      objects.has(pathname)
    ) {
      end(412, '<Error><Code>PreconditionFailed</Code></Error>');
    } else if (request.method === 'PUT') {
      const isWhole = request.headers['x-amz-content-sha256'] === sha256(body);
      if (isWhole) objects.set(pathname, body);
      if (isWhole) metadata.set(pathname, kept(request.headers));
      if (isWhole) end(200, '', { etag: `"${md5(body)}"` });
      else end(400, '<Error><Code>XAmzContentSHA256Mismatch</Code></Error>');
    } else {
      const found = objects.get(pathname);
      const etag = found === undefined ? '' : `"${md5(found)}"`;
      end(found === undefined ? 404 : 200, found, { etag, ...metadata.get(pathname) });
    }
  };
  const listing = (bucket: string, query: URLSearchParams): string => {
    const prefix = `${bucket.replace(/\/$/, '')}/${query.get('prefix') ?? ''}`;
    const after = Buffer.from(query.get('continuation-token') ?? '', 'base64').toString();
    const paths = [...objects.keys()]
      .filter((path) => decodeURIComponent(path).startsWith(prefix) && path > after)
      .sort();
    const page = paths.slice(0, served.pageSize);
    const contents = page.map(
      (path) =>
        `<Contents><Key>${decodeURIComponent(path).split('/').slice(2).join('/').replaceAll("'", '&#39;')}</Key><LastModified>${modified.get(path) ?? new Date().toISOString()}</LastModified><Size>${objects.get(path)?.length ?? 0}</Size></Contents>`,
    );
    const next =
      page.length < paths.length
        ? `<NextContinuationToken>${Buffer.from(page.at(-1) ?? '').toString('base64')}</NextContinuationToken>`
        : '';
    return `<ListBucketResult><IsTruncated>${next !== ''}</IsTruncated>${contents.join('')}${next}</ListBucketResult>`;
  };
  const multipart = (
    request: IncomingMessage,
    body: Buffer,
    path: string,
    query: URLSearchParams,
    end: (status: number, content?: string, headers?: object) => void,
  ): void => {
    const id = query.get('uploadId') ?? '';
    const upload = uploads.get(id);
    if (request.method === 'GET') {
      const prefix = query.get('prefix') ?? '';
      const listed = [...uploads].map(([id, { path }]) => ({ id, key: path.split('/').slice(2).join('/') }));
      const xml = listed
        .filter(({ key }) => key.startsWith(prefix))
        .map(
          ({ id, key }) =>
            `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${new Date(Date.now() + 1000).toISOString()}</Initiated></Upload>`,
        );
      end(200, `<ListMultipartUploadsResult>${xml.join('')}</ListMultipartUploadsResult>`);
    } else if (query.has('uploads')) {
      const created = `u-${uploads.size}-${Math.random().toString(36).slice(2)}`;
      uploads.set(created, { path, headers: request.headers, parts: new Map() });
      end(200, `<R><UploadId>${created}</UploadId></R>`);
    } else if (upload?.path !== path) {
      end(404, '<Error><Code>NoSuchUpload</Code></Error>');
    } else if (request.method === 'DELETE') {
      uploads.delete(id);
      end(204);
    } else if (request.method === 'PUT') {
      upload.parts.set(Number(query.get('partNumber')), body);
      end(200, '', { etag: `"${md5(body)}"` });
    } else if (request.headers['if-none-match'] === '*' && objects.has(path)) {
      end(412, '<Error><Code>PreconditionFailed</Code></Error>');
    } else {
      const named = Array.from(
        body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>"?([\da-f]+)"?<\/ETag>/g),
        ([, number = '', etag = '']) => ({ part: upload.parts.get(Number(number)), etag }),
      );
      const isRight = named.every(({ part, etag }) => part !== undefined && md5(part) === etag);
      if (!isRight) {
        end(400, '<Error><Code>InvalidPart</Code></Error>');
        return;
      }
      objects.set(path, Buffer.concat(named.map(({ part }) => part ?? Buffer.alloc(0))));
      metadata.set(path, kept(upload.headers));
      uploads.delete(id);
      end(200, '<CompleteMultipartUploadResult/>');
    }
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const get: S3Server['get'] = async (url) => {
    const response = await fetch(url);
    return response.ok ? Buffer.from(await response.arrayBuffer()) : response.status;
  };
  const served: S3Server = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    objects,
    metadata,
    modified,
    pageSize: 1000,
    uploads,
    calls,
    faults,
    get,
  };
  return served;
}

/** Writes a config file with the user's store, as `mgw config set` would. Uploads are stored below `url`, if set. */
export function configureStore({ env }: User, endpoint: string, url?: string): void {
  const folder = env['MGW_CONFIG_DIR'] ?? '';
  mkdirSync(folder, { mode: 0o700 });
  const profiles = { default: { store: { ...(url !== undefined && { url }), endpoint } } };
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ profiles }), { mode: 0o600 });
}

/** Returns the upload headers that are stored with the object. */
export const kept = (headers: IncomingHttpHeaders): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => name === 'content-type' || name.startsWith('x-amz-meta-'))
      .map(([name, value]) => [name, String(value)]),
  );
const md5 = (data: Buffer): string => createHash('md5').update(data).digest('hex');
const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');
const hmac = (key: string | Buffer, data: string): Buffer => createHmac('sha256', key).update(data).digest();

// Checks the signature in a call's header or in a presigned URL's query.
function isSigned(request: IncomingMessage): boolean {
  const url = new URL(request.url ?? '', 'http://store');
  const query = url.searchParams;
  const header = request.headers.authorization ?? '';
  const fields = Object.fromEntries(
    Array.from(header.matchAll(/(\w+)=([^,\s]+)/g), ([, name = '', value = '']) => [name, value]),
  );
  const inQuery = query.get('X-Amz-Signature');
  const signature = inQuery ?? fields['Signature'] ?? '';
  const credential = (query.get('X-Amz-Credential') ?? fields['Credential'] ?? '').split('/');
  const names = (query.get('X-Amz-SignedHeaders') ?? fields['SignedHeaders'] ?? '').split(';');
  const time = query.get('X-Amz-Date') ?? String(request.headers['x-amz-date']);
  query.delete('X-Amz-Signature');
  const encode = (text: string): string =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const canonicalQuery = [...query]
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .sort()
    .join('&');
  const headers = names.map((name) => `${name}:${String(request.headers[name]).trim()}\n`).join('');
  const payload = inQuery === null ? String(request.headers['x-amz-content-sha256']) : 'UNSIGNED-PAYLOAD';
  const canonical = [request.method, url.pathname, canonicalQuery, headers, names.join(';'), payload].join(
    '\n',
  );
  const [id, day = '', region = '', service = ''] = credential;
  const scope = `${day}/${region}/${service}/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n');
  const dayKey = hmac(`AWS4${account.AWS_SECRET_ACCESS_KEY}`, day);
  const key = hmac(hmac(hmac(dayKey, region), service), 'aws4_request');
  const expected = hmac(key, text).toString('hex');
  return id === account.AWS_ACCESS_KEY_ID && service === 's3' && signature === expected;
}
