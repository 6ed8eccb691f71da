import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** The credentials for the sandbox's object storage, by AWS variable name. They give access to nothing else. */
export const storeAccount = {
  AWS_ACCESS_KEY_ID: 'AKIASANDBOX',
  AWS_SECRET_ACCESS_KEY: 'sandbox-store-secret',
  AWS_REGION: 'us-east-1',
} as const;

/** A request to object storage. `path` and `query` are percent-encoded. */
interface SignedRequest {
  method: string;
  path: string;
  query: string;
  headers: IncomingHttpHeaders;
  body: Uint8Array;
}

/** The reason why a request is refused: the S3 error code, the HTTP status, and the message. */
export interface Refusal {
  status: number;
  code: string;
  message: string;
}

/** The parts of a signature, from a presigned URL's query or a request's header. */
interface Signature {
  credential: string[];
  signedHeaders: string[];
  date: string;
  signature: string;
  /** The signed payload hash: the SHA-256 of the body, or `UNSIGNED-PAYLOAD`. */
  payload: string;
  /** The time at which a presigned URL expires, in ms since 1970; undefined if the signature is in a header. */
  expiresAt?: number;
}

/**
 * Checks a request's AWS Signature Version 4. `now` is in ms since 1970. Returns undefined if the signature is valid.
 */
export function checkSignature(request: SignedRequest, now: number): Refusal | undefined {
  const pairs = pairsOf(request.query);
  const parts = readQuerySignature(pairs) ?? readHeaderSignature(request.headers);
  if (parts === undefined) return denial('AccessDenied', 'The request is not signed.');
  if (parts.credential[0] !== storeAccount.AWS_ACCESS_KEY_ID)
    return denial('InvalidAccessKeyId', 'The sandbox has no such access key.');
  const expectedBytes = Buffer.from(sign(request, pairs, parts));
  const sentBytes = Buffer.from(parts.signature);
  if (sentBytes.length !== expectedBytes.length || !timingSafeEqual(sentBytes, expectedBytes))
    return denial('SignatureDoesNotMatch', 'The signature does not match.');
  if ((parts.expiresAt ?? Infinity) < now) return denial('AccessDenied', 'Request has expired');
  if (/^[\da-f]{64}$/.test(parts.payload) && parts.payload !== sha256(request.body))
    return {
      status: 400,
      code: 'XAmzContentSHA256Mismatch',
      message: 'The body differs from the signed body.',
    };
  return undefined;
}

/** Returns a query's names and values, decoded. A `+` is a plus sign, not a space. */
export function pairsOf(query: string): [string, string][] {
  const parts = query.split('&').filter((part) => part !== '');
  return parts.map((part) => {
    const [name = '', ...rest] = part.split('=');
    return [decode(name), decode(rest.join('='))];
  });
}

/** Decodes a percent-encoded string. Returns an invalid string unchanged. */
export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function readQuerySignature(pairs: readonly [string, string][]): Signature | undefined {
  const query = new Map(pairs);
  const [signature, date = ''] = [query.get('X-Amz-Signature'), query.get('X-Amz-Date')];
  if (signature === undefined) return undefined;
  const [, year, month, day, hour, minute, second] =
    /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(date)?.map(Number) ?? [];
  const at = Date.UTC(year ?? NaN, (month ?? NaN) - 1, day, hour, minute, second);
  return {
    credential: (query.get('X-Amz-Credential') ?? '').split('/'),
    signedHeaders: (query.get('X-Amz-SignedHeaders') ?? '').split(';'),
    ...{ date, signature, payload: 'UNSIGNED-PAYLOAD' },
    expiresAt: at + Number(query.get('X-Amz-Expires') ?? NaN) * 1000 || 0,
  };
}

function readHeaderSignature(headers: IncomingHttpHeaders): Signature | undefined {
  const [scheme, text = ''] = (headers.authorization ?? '').split(/ (.*)/s);
  if (scheme !== 'AWS4-HMAC-SHA256') return undefined;
  const fields = new Map(
    text.split(',').map((field) => {
      const [name = '', value = ''] = field.trim().split('=');
      return [name, value] as const;
    }),
  );
  return {
    credential: (fields.get('Credential') ?? '').split('/'),
    signedHeaders: (fields.get('SignedHeaders') ?? '').split(';'),
    signature: fields.get('Signature') ?? '',
    date: headerOf(headers, 'x-amz-date'),
    payload: headerOf(headers, 'x-amz-content-sha256'),
  };
}

function sign({ method, path, headers }: SignedRequest, pairs: [string, string][], parts: Signature): string {
  const query = pairs
    .filter(([name]) => name !== 'X-Amz-Signature')
    .map((pair) => pair.map(encode).join('='))
    .sort()
    .join('&');
  const headerLines = parts.signedHeaders
    .map((name) => `${name}:${headerOf(headers, name).trim()}\n`)
    .join('');
  const canonical = [method, path, query, headerLines, parts.signedHeaders.join(';'), parts.payload].join(
    '\n',
  );
  const [, day = '', region = '', service = '', end = ''] = parts.credential;
  const text = ['AWS4-HMAC-SHA256', parts.date, [day, region, service, end].join('/'), sha256(canonical)];
  const key = [day, region, service, end].reduce<Buffer>(
    hmac,
    Buffer.from(`AWS4${storeAccount.AWS_SECRET_ACCESS_KEY}`),
  );
  return hmac(key, text.join('\n')).toString('hex');
}

function denial(code: string, message: string): Refusal {
  return { status: 403, code, message };
}

function headerOf(headers: IncomingHttpHeaders, name: string): string {
  return [headers[name] ?? ''].flat().join(',');
}

function encode(text: string): string {
  const percent = (char: string): string => `%${char.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, percent);
}

function sha256(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
