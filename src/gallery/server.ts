import { randomBytes } from 'node:crypto';
import { constants, fstatSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, extname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { messageOf, systemCode, usageError } from '../errors.ts';
import { type FileVersion, hashFile, isSameVersion, versionOf } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import { tryParseJson } from '../json.ts';
import {
  type IncomingMessage,
  isForeign,
  listenOnLoopback,
  parseRange,
  type ServerResponse,
} from '../sandbox/listener.ts';
import type { GalleryData } from './data.ts';
import { mediaTypes } from './files.ts';
import { type GalleryRating, readRating } from '../jobs/view.ts';

/** Dependencies of a served gallery. */
interface GalleryDeps {
  page(hrefOf: (job: Job, index: number) => string, save: GalleryData['save']): Promise<string>;
  fileOf(job: string, index: number): Promise<JobFile | undefined>;
  rate(rating: GalleryRating): Promise<void>;
}

/** A running gallery server. */
interface GalleryServer {
  /** `http://127.0.0.1:PORT/TOKEN/`. The server refuses requests without the token. */
  url: string;
  close(): Promise<void>;
}

const maxRatingBytes = 64 * 1024;
const ratingsPath = 'ratings';

/**
 * Serves a gallery on 127.0.0.1 (port 0 chooses a free port). The URL contains a random token, so that neither another
 * user of the machine nor a page from another origin can read or rate the results. Refuses requests with any other host
 * name.
 * @throws MgwError('usage') if the port is in use.
 */
export async function startGallery(port: number, deps: GalleryDeps): Promise<GalleryServer> {
  const token = randomBytes(24).toString('base64url');
  const hashed = new Map<string, FileVersion>();
  const server = await listenOnLoopback(port, (request, response, own) => {
    answer(request, response, { origin: own, token, deps, hashed }).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else refuse(response, 500, messageOf(error));
    });
  }).catch((error: unknown) => {
    throw usageError(`--port: cannot listen on ${port}: ${messageOf(error)}.`);
  });
  return { url: `${server.origin}/${token}/`, close: () => server.close() };
}

interface Serving {
  origin: string;
  token: string;
  deps: GalleryDeps;
  /**
   * The version of each verified file, by SHA-256. A player requests many parts of a file,
   * but each file is hashed only once.
   */
  hashed: Map<string, FileVersion>;
}

async function answer(request: IncomingMessage, response: ServerResponse, serving: Serving): Promise<void> {
  response.setHeader('x-content-type-options', 'nosniff');
  response.setHeader('referrer-policy', 'no-referrer');
  response.setHeader('cross-origin-resource-policy', 'same-origin');
  if (isForeign(request.headers, serving.origin))
    refuse(response, 403, 'This gallery accepts requests from this machine only.');
  else await route(request, response, serving);
}

async function route(request: IncomingMessage, response: ServerResponse, serving: Serving): Promise<void> {
  const { token, deps } = serving;
  const [own, ...steps] = (request.url ?? '').split('?')[0]?.split('/').slice(1) ?? [];
  const [folder = '', job = '', index = ''] = steps;
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  if (own !== token) refuse(response, 404, 'Open the URL that mgw printed.');
  else if (request.method === 'POST' && folder === ratingsPath) await takeRating(request, response, serving);
  else if (!isRead) refuse(response, 405, 'This page is read-only.');
  else if (folder === '') sendPage(response, await deps.page(hrefOf, { path: ratingsPath, token }));
  else {
    const file = folder === 'media' ? await deps.fileOf(job, Number(index)) : undefined;
    if (file === undefined) refuse(response, 404, 'There is no such file.');
    else await sendFile(request, response, { job: file, hashed: serving.hashed });
  }
}

function hrefOf({ id, files }: Job, index: number): string {
  return `media/${id}/${index}/${encodeURIComponent(basename(files[index]?.path ?? ''))}`;
}

function sendPage(response: ServerResponse, html: string): void {
  response.writeHead(200, { 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' });
  response.end(html);
}

async function takeRating(
  request: IncomingMessage,
  response: ServerResponse,
  { token, deps }: Serving,
): Promise<void> {
  const isOurs =
    request.headers['x-mgw-token'] === token && request.headers['content-type'] === 'application/json';
  const rating = isOurs ? readRating(tryParseJson(await bodyOf(request))) : undefined;
  if (!isOurs) refuse(response, 403, 'Only the gallery page can save ratings.');
  else if (rating === undefined) refuse(response, 400, 'The request does not contain a valid rating.');
  else {
    await deps.rate(rating);
    response.writeHead(204).end();
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    chunks.push(chunk as Buffer);
    size += (chunk as Buffer).length;
    if (size > maxRatingBytes) throw new Error(`The rating is longer than ${maxRatingBytes / 1024} KiB.`);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function refuse(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' }).end(`${text}\n`);
}

/**
 * Sends a file, or the requested part of it. Responds with HTTP 404 if the file does not have the recorded content,
 * because an imported record may refer to any of the user's files.
 */
async function sendFile(
  request: IncomingMessage,
  response: ServerResponse,
  { job, hashed }: { job: JobFile; hashed: Serving['hashed'] },
): Promise<void> {
  const { path, bytes: size } = job;
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => undefined);
  try {
    if (file === undefined || !(await isRecorded(file.fd, job, hashed))) {
      refuse(response, 404, 'The file is gone or has changed.');
      return;
    }
    const range = parseRange(request.headers.range ?? '', size);
    if (range === 'beyond') {
      response.writeHead(416, { 'content-range': `bytes */${size}` }).end();
      return;
    }
    const { start, end } = range === 'whole' ? { start: 0, end: size } : range;
    response.writeHead(range === 'whole' ? 200 : 206, {
      'content-type': mediaTypes[extname(path).toLowerCase()] ?? 'application/octet-stream',
      'content-length': end - start,
      'accept-ranges': 'bytes',
      'cache-control': 'no-cache',
      'content-security-policy': "default-src 'none'; sandbox",
      ...(range !== 'whole' && { 'content-range': `bytes ${start}-${end - 1}/${size}` }),
    });
    if (request.method === 'HEAD' || size === 0) response.end();
    else await pipeline(file.createReadStream({ start, end: end - 1, autoClose: false }), response);
  } catch (error) {
    // A player may close the connection early.
    if (systemCode(error) !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  } finally {
    await file?.close();
  }
}

async function isRecorded(
  file: number,
  { bytes, sha256 }: JobFile,
  hashed: Serving['hashed'],
): Promise<boolean> {
  const version = versionOf(file);
  if (!fstatSync(file).isFile() || version.size !== BigInt(bytes)) return false;
  const hashedVersion = hashed.get(sha256);
  if (hashedVersion !== undefined && isSameVersion(hashedVersion, version)) return true;
  const isSame = (await hashFile(file)).digest('hex') === sha256 && isSameVersion(versionOf(file), version);
  if (isSame) hashed.set(sha256, version);
  return isSame;
}
