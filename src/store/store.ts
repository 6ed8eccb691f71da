import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { type Clock, type Deadline, maxTimerMs } from '../clock.ts';
import { messageOf, MgwError, usageError } from '../errors.ts';
import type { Reply } from '../exchange.ts';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { printableLine } from '../printable.ts';

/** Storage for input files. The gateway fetches the files from it by URL (design 17). */
export interface Store {
  /**
   * Uploads a file unless the store has it, and returns a URL that anyone can use to read the file for a limited time.
   * @param name the name from {@link storedName}
   * @param read returns the file's content; absent if the content is not available
   * @throws MgwError('store'): exit 6 if a retry may succeed, else 10; MgwError('usage') if the store does not have the
   * file and `read` is absent.
   */
  url(name: string, read?: () => Promise<Uint8Array>): Promise<string>;
  /**
   * Returns a stored file's MIME type and size in bytes. Absent if the store is a program.
   * @throws MgwError('store')
   */
  describe?(name: string): Promise<{ mime: string; bytes: number }>;
  /** The files that mgw has uploaded. Absent if the store is a program. */
  uploads?: Uploads;
  close(): void;
}

/** The files that mgw has uploaded. Every method throws MgwError('store') as {@link Store} does. */
export interface Uploads {
  /** Lists the files by name, without the bucket's other objects. */
  list(): Promise<UploadedInput[]>;
  /** Removes a file, if it still exists. */
  remove(name: string): Promise<void>;
}

/** An input file in the store. */
export interface UploadedInput {
  /** The name from {@link storedName}. */
  name: string;
  /** The object's URL: `s3://BUCKET/KEY`. */
  url: string;
  bytes: number;
  /** The time of the upload, in ISO 8601. */
  uploaded_at: string;
}

/** A store's dependencies. */
export interface StoreDeps {
  clock: Clock;
  deadline: Deadline;
  /** The maximum number of retries of a refused or unsent request. */
  retries: number;
  signal: AbortSignal;
  note: (text: string) => void;
  userAgent: string;
  /** Whether the store may be an http:// address that is not loopback. */
  allowHttp: boolean;
  /** The secrets to hide from programs that mgw starts: the API key. */
  secrets: readonly string[];
}

/** A store's settings. */
export interface StoreSettings {
  /** The bucket and prefix: `s3://BUCKET/PREFIX`. */
  url?: string | undefined;
  /** The URL of an S3-compatible service (default: `AWS_ENDPOINT_URL_S3`, or else AWS). */
  endpoint?: string | undefined;
  /** The program that uploads files in place of S3, and its arguments. */
  command?: readonly string[] | undefined;
  /** The validity of a URL, in ms. */
  expiresMs: number;
}

/**
 * Returns a file's name, derived from its content: `sha256:HEX.ext`. The extension is included because gateways may
 * judge a URL by it.
 */
export function storedName(path: string, content: Uint8Array): string {
  const extension = extname(path).toLowerCase();
  const hash = createHash('sha256').update(content).digest('hex');
  return `sha256:${hash}${/^\.[a-z\d]{1,8}$/.test(extension) ? extension : ''}`;
}

/**
 * Returns a store's error, thrown before anything was sent to the gateway. `isTemporary` is true if a
 * retry may succeed.
 */
export function storeError(message: string, isTemporary: boolean, cause?: unknown): MgwError {
  const details = { charged: 'no', retry: isTemporary ? 'safe' : 'never', cause } as const;
  return new MgwError('store', message, {
    ...details,
    ...(isTemporary ? { exit: 'unavailable' } : { next: ['mgw', 'config', 'list'] }),
  });
}

/** The maximum number of attempts to send content. */
const maxTries = 3;

/**
 * Sends content, at most three times, until the store proves that it has the content. A success without an ETag may be
 * a proxy's response. In that case, `isStored` decides.
 * @param send makes one request with Content-MD5; `isCorrupt` is true if the previous attempt stored different content
 * @param isStored whether the object exists with the right size and checksum
 * @throws MgwError('store'), exit 6, if the content was not stored correctly.
 */
export async function sendUntilStored(
  body: Uint8Array,
  shown: string,
  note: (text: string) => void,
  send: (isCorrupt: boolean) => Promise<Reply>,
  isStored: () => Promise<boolean>,
): Promise<Reply> {
  let isCorrupt = false;
  for (let tries = 1; ; tries += 1) {
    const reply = await send(isCorrupt);
    isCorrupt = reply.status < 300 && isContradicted(reply.headers, md5(body, 'hex'));
    const isWrong = isCorrupt || isRefusedAsCorrupt(reply);
    const isProven = reply.status > 299 || Boolean(reply.headers['etag']);
    if (!isWrong && (isProven || (await isStored()))) return reply;
    const [problem, problems] = isWrong
      ? [`The checksum of ${shown} is wrong`, `The checksum of ${shown} was wrong ${tries} times`]
      : [
          `The store accepted ${shown} but did not store it`,
          `The store accepted ${shown} ${tries} times but did not store it`,
        ];
    if (tries === maxTries) throw storeError(`${problems}.`, true);
    note(`${problem}; sending it again.`);
  }
}

function isRefusedAsCorrupt({ status, text }: Reply): boolean {
  return status === 400 && /<Code>[^<]*(Digest|Mismatch)/.test(text);
}

/**
 * Whether a response's ETag is an MD5, but not the expected one. If the service encrypts with its own key, the ETag is
 * not an MD5. In that case, the service has checked Content-MD5.
 */
export function isContradicted(headers: Reply['headers'], expected: string | undefined): boolean {
  const etag = (headers['etag'] ?? '').replaceAll('"', '').toLowerCase();
  const isMd5 =
    /^[\da-f]{32}$/.test(etag) &&
    !/kms/.test(headers['x-amz-server-side-encryption'] ?? '') &&
    headers['x-amz-server-side-encryption-customer-algorithm'] === undefined;
  return isMd5 && expected !== undefined && etag !== expected;
}

/** Returns the MD5 of content. S3 accepts it in Base64 and returns it in hexadecimal. */
export function md5(body: Uint8Array, encoding: 'hex' | 'base64'): string {
  return createHash('md5').update(body).digest(encoding);
}

const maxOutputBytes = 16 * 1024;

/**
 * Opens a store that is a program. The program reads the file from stdin and the name from `MGW_OBJECT_NAME`, and
 * prints a URL (design 17). It runs without a shell, and without variables that contain mgw's secrets.
 */
export function openCommandStore(
  [program = '', ...args]: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  { deadline, signal, secrets }: StoreDeps,
): Store {
  const isSecret = ([name, value = '']: [string, string | undefined]): boolean =>
    /^(MGW_API_KEY(_FILE)?|MGW_STATE|PGPASSWORD)$/.test(name) ||
    secrets.some((secret) => secret !== '' && value.includes(secret));
  const childEnv = Object.fromEntries(Object.entries(env).filter((entry) => !isSecret(entry)));
  const upload = async (name: string, content: Uint8Array): Promise<string> => {
    const child = spawn(program, args, {
      env: { ...childEnv, MGW_OBJECT_NAME: name.replace(/^sha256:/, '') },
      stdio: ['pipe', 'pipe', 'inherit'],
      signal: AbortSignal.any([
        signal,
        AbortSignal.timeout(Math.min(Math.ceil(deadline.remainingMs()), maxTimerMs)),
      ]),
    });
    // The program may exit without reading its input. Its exit code is then reported instead of this error.
    child.stdin.on('error', () => undefined);
    child.stdin.end(content);
    const closing = once(child, 'close') as Promise<[number | null]>;
    let output = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text: string) => (output = (output + text).slice(0, maxOutputBytes)));
    const [code] = await closing;
    if (code !== 0) throw new Error(code === null ? 'it was ended by a signal' : `it exited with ${code}`);
    return output.trim();
  };
  return {
    url: async (name, read) => {
      if (read === undefined)
        throw usageError(
          `${name} was uploaded by store.command, which needs the file again. Run the original command again.`,
        );
      const content = await read();
      const url = await upload(name, content).catch((error: unknown) => {
        signal.throwIfAborted();
        const reason = deadline.remainingMs() <= 0 ? 'the time limit passed' : messageOf(error);
        throw storeError(`store.command (${printableLine(program, 80)}) failed: ${reason}.`, false, error);
      });
      if (/^https?:\/\/[^\s\p{Cc}]+$/u.test(url) && URL.canParse(url)) return url;
      throw storeError(`store.command (${printableLine(program, 80)}) did not print a URL.`, false);
    },
    close: () => undefined,
  };
}
