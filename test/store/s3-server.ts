import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/** A store that checks every signature by its own code, written after the description of AWS Signature Version 4. */
export interface S3Server {
  url: string;
  /** Contents by path. */
  objects: Map<string, Buffer>;
  /** `PUT /bucket/key` and the like, with the status that was answered. */
  calls: string[];
  /** Answers the next requests instead. */
  faults: ((request: IncomingMessage, response: ServerResponse) => void)[];
  /** Returns the content behind a presigned URL, or the status of the refusal. */
  get(url: string): Promise<Buffer | number>;
}

export const account = { AWS_ACCESS_KEY_ID: 'AKIDSTORE', AWS_SECRET_ACCESS_KEY: 'store-secret-4711' };

export async function s3Server(): Promise<S3Server> {
  const objects = new Map<string, Buffer>();
  const calls: string[] = [];
  const faults: S3Server['faults'] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const fault = faults.shift();
      if (fault === undefined) answer(request, Buffer.concat(chunks), response);
      else fault(request, response);
    });
  });
  const answer = (request: IncomingMessage, body: Buffer, response: ServerResponse): void => {
    const { pathname } = new URL(request.url ?? '', 'http://store');
    const end = (status: number, content?: Buffer | string): void => {
      calls.push(`${request.method ?? ''} ${pathname} ${status}`);
      response.writeHead(status, {
        'content-length': content === undefined ? 0 : Buffer.byteLength(content),
      });
      response.end(request.method === 'HEAD' ? undefined : content);
    };
    if (!isSigned(request)) {
      end(403, '<Error><Code>SignatureDoesNotMatch</Code></Error>');
    } else if (request.method === 'PUT') {
      const isWhole = request.headers['x-amz-content-sha256'] === sha256(body);
      if (isWhole) objects.set(pathname, body);
      end(isWhole ? 200 : 400, isWhole ? '' : '<Error><Code>XAmzContentSHA256Mismatch</Code></Error>');
    } else {
      const found = objects.get(pathname);
      end(found === undefined ? 404 : 200, found);
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
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, objects, calls, faults, get };
}

const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');
const hmac = (key: string | Buffer, data: string): Buffer => createHmac('sha256', key).update(data).digest();

// By header for calls, by query for presigned URLs.
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
