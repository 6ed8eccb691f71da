import { createHash } from 'node:crypto';
import { isUnreachable, readBody } from '../body.ts';
import { type Gateway, RefusedCall, type Reply } from '../exchange.ts';
import type { FaultName } from '../faults.ts';
import { type Request, parseRange } from '../listener.ts';
import { Objects, type Upload } from './objects.ts';
import { checkSignature, decode, pairsOf, type Refusal } from './signature.ts';

/** The path at which the sandbox serves an S3-compatible API. Buckets do not have to be created first. */
export const storePath = '/s3';

/** A request with a valid signature. */
interface StoreCall {
  method: string;
  bucket: string;
  /** The object's key; '' for the bucket itself. */
  key: string;
  query: Map<string, string>;
  headers: Request['message']['headers'];
  body: Buffer;
  now: number;
  objects: Objects;
}

const faultReplies: readonly [FaultName, string, Refusal][] = [
  ['store-500', '', { status: 500, code: 'InternalError', message: 'Internal error.' }],
  ['store-slow-down', '', { status: 503, code: 'SlowDown', message: 'Please reduce your request rate.' }],
  ['store-expired', '', { status: 403, code: 'ExpiredToken', message: 'The token has expired.' }],
  ['store-bad-digest', 'PUT', { status: 400, code: 'BadDigest', message: 'The MD5 does not match.' }],
];

/** Responds to a request to the object storage: checks the signature, applies faults, then runs the operation. */
export async function answerStore(gateway: Gateway, request: Request): Promise<Reply> {
  const { method, path, query, message } = request;
  try {
    const { headers } = message;
    const rawBody = await readBody(message);
    const refusal = checkSignature({ method, path, query, headers, body: rawBody }, gateway.now());
    if (refusal !== undefined) return errorReply(refusal);
    const body = contentOf(headers, rawBody);
    if (body === undefined)
      return errorReply({ status: 400, code: 'IncompleteBody', message: 'The chunks are incomplete.' });
    for (const [name, only, fault] of faultReplies)
      if (method.startsWith(only) && gateway.takeFault(name)) return errorReply(fault);
    if (method === 'PUT' && gateway.takeFault('store-reset'))
      return { status: 500, headers: {}, body: '', cutAt: -1 };
    const { bucket, key } = placeOf(path);
    if (!/^[a-z\d][a-z\d.-]{1,61}[a-z\d]$/.test(bucket))
      return errorReply({ status: 400, code: 'InvalidBucketName', message: 'The bucket name is invalid.' });
    const objects = new Objects(gateway.stateDir);
    return operate({
      ...{ method, bucket, key, query: new Map(pairsOf(query)) },
      ...{ headers, body, now: gateway.now(), objects },
    });
  } catch (error) {
    if (error instanceof RefusedCall)
      return errorReply({ status: 400, code: 'EntityTooLarge', message: 'The body is too large.' });
    throw error;
  }
}

/**
 * Whether an upstream could fetch an asset. An asset in the sandbox's own storage must have a valid signature, and the
 * object must exist.
 */
export function canFetch({ url, stateDir, now }: Gateway, asset: string): boolean {
  const { pathname: path, search, host, hostname, port } = new URL(asset);
  const isOwn = ['127.0.0.1', 'localhost'].includes(hostname) && port === new URL(url).port;
  if (!isOwn || !path.startsWith(`${storePath}/`)) return !isUnreachable(asset);
  const signed = { method: 'GET', path, query: search.slice(1), headers: { host }, body: Buffer.alloc(0) };
  const { bucket, key } = placeOf(path);
  return checkSignature(signed, now()) === undefined && new Objects(stateDir).read(bucket, key) !== undefined;
}

function placeOf(path: string): { bucket: string; key: string } {
  const [, bucket = '', key = ''] = /^\/([^/]*)\/?(.*)$/s.exec(path.slice(storePath.length)) ?? [];
  return { bucket, key: decode(key) };
}

// Decodes a chunked body, as sent by SDKs for a stream: each chunk follows its length, and checksums
// follow the last chunk.
function contentOf(headers: StoreCall['headers'], body: Buffer): Buffer | undefined {
  if (!String(headers['x-amz-content-sha256']).startsWith('STREAMING-')) return body;
  const chunks: Buffer[] = [];
  for (let at = 0; ;) {
    const end = body.indexOf('\r\n', at);
    const length = parseInt(body.toString('latin1', at, end), 16);
    const start = end + 2;
    if (end < 0 || Number.isNaN(length) || start + length > body.length) return undefined;
    if (length === 0) break;
    chunks.push(body.subarray(start, start + length));
    at = start + length + 2;
  }
  const content = Buffer.concat(chunks);
  return content.length === Number(headers['x-amz-decoded-content-length']) ? content : undefined;
}

function operate(call: StoreCall): Reply {
  const { method, bucket, key, query, headers, objects } = call;
  if (key === '') return bucketReply(call);
  // Without this check, a copy request would store an empty object.
  if (headers['x-amz-copy-source'] !== undefined) return unknownOperation();
  const id = query.get('uploadId');
  if (id !== undefined) {
    const upload = objects.upload(id, bucket, key);
    if (upload === undefined)
      return errorReply({ status: 404, code: 'NoSuchUpload', message: 'There is no such upload.' });
    return uploadReply(call, upload);
  }
  if (method === 'POST' && query.has('uploads')) return begin(call);
  if (method === 'PUT') return put(call);
  if (method === 'DELETE') {
    objects.remove(bucket, key);
    return reply(204);
  }
  if (method === 'POST') return unknownOperation();
  const object = objects.read(bucket, key);
  if (object === undefined) return errorReply({ status: 404, code: 'NoSuchKey', message: 'No such key.' });
  const { head, content } = object;
  const objectHeaders = {
    ...head.headers,
    ETag: head.etag,
    'Last-Modified': new Date(head.modified).toUTCString(),
    'Accept-Ranges': 'bytes',
  };
  const span = method === 'GET' ? parseRange(headers.range ?? '', content.length) : 'whole';
  if (span === 'whole') return { status: 200, headers: objectHeaders, body: content };
  if (span === 'beyond')
    return errorReply({ status: 416, code: 'InvalidRange', message: 'The range is beyond the end.' });
  const range = `bytes ${span.start}-${span.end - 1}/${content.length}`;
  const part = content.subarray(span.start, span.end);
  return { status: 206, headers: { ...objectHeaders, 'Content-Range': range }, body: part };
}

function unknownOperation(): Reply {
  return errorReply({ status: 501, code: 'NotImplemented', message: 'The sandbox has no such operation.' });
}

function bucketReply({ method, bucket, query, objects }: StoreCall): Reply {
  if (method === 'HEAD' || method === 'PUT') return reply(200);
  if (method !== 'GET') return unknownOperation();
  const prefix = query.get('prefix') ?? '';
  if (query.has('uploads')) {
    const uploads = objects.uploads(bucket).filter(({ key }) => key.startsWith(prefix));
    const uploadXml = ({ key, id, begun }: Upload): string =>
      `<Upload><Key>${escapeXml(key)}</Key><UploadId>${id}</UploadId><Initiated>${isoTime(begun)}</Initiated></Upload>`;
    return xml('ListMultipartUploadsResult', uploads.map(uploadXml).join(''));
  }
  const after = query.get('continuation-token') ?? query.get('start-after') ?? '';
  const max = Number(query.get('max-keys') ?? 1000);
  const delimiter = query.get('delimiter') ?? '';
  // Returns the key, or the key's folder below the prefix if there is a delimiter.
  const displayKeyOf = (key: string): string => {
    const end = delimiter === '' ? -1 : key.indexOf(delimiter, prefix.length);
    return end < 0 ? key : key.slice(0, end + delimiter.length);
  };
  const entriesByKey = new Map(
    objects
      .list(bucket, prefix)
      .filter(({ key }) => displayKeyOf(key) > after)
      .map((head) => [displayKeyOf(head.key), head]),
  );
  const page = [...entriesByKey].slice(0, max);
  const isTruncated = entriesByKey.size > page.length;
  const contents = page.map(([name, { key, bytes, etag, modified }]) =>
    name !== key
      ? `<CommonPrefixes><Prefix>${escapeXml(name)}</Prefix></CommonPrefixes>`
      : `<Contents><Key>${escapeXml(key)}</Key><LastModified>${isoTime(modified)}</LastModified><ETag>${escapeXml(etag)}</ETag><Size>${bytes}</Size></Contents>`,
  );
  const next = isTruncated
    ? `<NextContinuationToken>${escapeXml(page.at(-1)?.[0] ?? '')}</NextContinuationToken>`
    : '';
  const head = `<Name>${bucket}</Name><KeyCount>${page.length}</KeyCount><IsTruncated>${isTruncated}</IsTruncated>`;
  return xml('ListBucketResult', head + next + contents.join(''));
}

function put(call: StoreCall): Reply {
  const { bucket, key, headers, body, now, objects } = call;
  if (!isWhole(call))
    return errorReply({ status: 400, code: 'BadDigest', message: 'The MD5 does not match.' });
  const etag = `"${md5(body).toString('hex')}"`;
  const head = { bucket, key, headers: storedHeaders(headers), bytes: body.length, etag, modified: now };
  return objects.write(head, body, headers['if-none-match'] !== '*')
    ? reply(200, { ETag: etag })
    : objectExists();
}

function begin({ bucket, key, headers, now, objects }: StoreCall): Reply {
  const id = objects.begin({ bucket, key, headers: storedHeaders(headers), begun: now });
  return xml('InitiateMultipartUploadResult', `<UploadId>${id}</UploadId>`);
}

function uploadReply(call: StoreCall, upload: Upload): Reply {
  const { method, query, body, objects } = call;
  if (method === 'DELETE') {
    objects.abort(upload);
    return reply(204);
  }
  if (method === 'POST') return complete(call, upload);
  if (!isWhole(call))
    return errorReply({ status: 400, code: 'BadDigest', message: 'The MD5 does not match.' });
  objects.writePart(upload, Number(query.get('partNumber')), body);
  return reply(200, { ETag: `"${md5(body).toString('hex')}"` });
}

function complete({ headers, body, now, objects }: StoreCall, upload: Upload): Reply {
  const partTexts = body.toString().split('<Part>').slice(1);
  const parts = partTexts.map((part) => {
    const [, number] = /<PartNumber>(\d+)/.exec(part) ?? [];
    const [, etag] = /<ETag>(?:"|&quot;)?([\da-f]+)/.exec(part) ?? [];
    const content = objects.part(upload, Number(number));
    return content !== undefined && md5(content).toString('hex') === etag ? content : undefined;
  });
  const intactParts = parts.filter((part) => part !== undefined);
  if (intactParts.length === 0 || intactParts.length < parts.length)
    return errorReply({ status: 400, code: 'InvalidPart', message: 'A part is missing or differs.' });
  const content = Buffer.concat(intactParts);
  const etag = `"${md5(Buffer.concat(intactParts.map(md5))).toString('hex')}-${intactParts.length}"`;
  const head = { ...upload, bytes: content.length, etag, modified: now };
  if (!objects.write(head, content, headers['if-none-match'] !== '*')) return objectExists();
  objects.abort(upload);
  return xml('CompleteMultipartUploadResult', `<ETag>${escapeXml(etag)}</ETag>`);
}

function isWhole({ headers, body }: StoreCall): boolean {
  const declaredMd5 = headers['content-md5'];
  return declaredMd5 === undefined || declaredMd5 === md5(body).toString('base64');
}

function storedHeaders(headers: StoreCall['headers']): Record<string, string> {
  const storedPairs = Object.entries(headers).filter(([name]) => /^(content-type|x-amz-meta-.+)$/.test(name));
  return Object.fromEntries(storedPairs.map(([name, value]) => [name, String(value)]));
}

function objectExists(): Reply {
  return errorReply({ status: 412, code: 'PreconditionFailed', message: 'The object exists.' });
}

function errorReply({ status, code, message }: Refusal): Reply {
  return { ...xml('Error', `<Code>${code}</Code><Message>${escapeXml(message)}</Message>`), status };
}

function reply(status: number, headers: Record<string, string> = {}): Reply {
  return { status, headers, body: '' };
}

function xml(name: string, content: string): Reply {
  const body = `<?xml version="1.0" encoding="UTF-8"?>\n<${name}>${content}</${name}>`;
  return { status: 200, headers: { 'Content-Type': 'application/xml' }, body };
}

function isoTime(at: number): string {
  return new Date(at).toISOString();
}

function escapeXml(text: string): string {
  return text.replace(/[<>&"]/g, (char) => `&#${char.charCodeAt(0)};`);
}

function md5(data: Uint8Array): Buffer {
  return createHash('md5').update(data).digest();
}
