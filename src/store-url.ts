import { resolve } from 'node:path';
import { messageOf, MgwError, usageError } from './errors.ts';
import { isLoopbackHost } from './exchange.ts';
import { printableLine } from './printable.ts';

/** Parses `s3://BUCKET/PREFIX`. @throws Error whose message states the allowed values. */
export function parseStoreUrl(text: string): { bucket: string; prefix: string } {
  const [, bucket = '', prefix = ''] = /^s3:\/\/([^/]*)(?:\/([\w!.*'()/-]*))?$/.exec(text) ?? [];
  if (!isBucketName(bucket) || prefix.split('/').some((step) => step === '.' || step === '..'))
    throw new Error('an address such as s3://BUCKET/PREFIX');
  return { bucket, prefix };
}

function isBucketName(text: string): boolean {
  return /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(text);
}

/** Parses the URL of a server other than the gateway. @throws Error whose message states the allowed values. */
export function parseEndpoint(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    url.username ||
    url.password ||
    url.search ||
    url.hash
  )
    throw new Error('an https:// or http:// address without a password or a query');
  return url;
}

/** Returns the URL of a store's endpoint. @throws MgwError('config') if the endpoint cannot be used. */
export function storeEndpoint(text: string, allowHttp: boolean): URL {
  let url: URL;
  try {
    url = parseEndpoint(text);
  } catch (error) {
    throw new MgwError('config', `The store's endpoint must be ${messageOf(error)}.`);
  }
  if (url.protocol === 'https:' || allowHttp || isLoopbackHost(url.hostname)) return url;
  const message = `The store's endpoint ${url.href} would receive your files without encryption (to allow it: --allow-http).`;
  throw new MgwError('config', message, { lacks: ['--allow-http'] });
}

/** Whether an output is an object in a bucket: `s3://BUCKET/KEY`. */
export function isObjectUrl(output: string): boolean {
  return output.startsWith('s3://');
}

/** Whether a string is a URL (`scheme://…`), not a path. */
export function isUrl(text: string): boolean {
  return /^[a-z][a-z\d+.-]+:\/\//i.test(text);
}

/** Returns a local output as an absolute path, and an object's URL unchanged. */
export function absoluteOutput(output: string): string {
  return isObjectUrl(output) ? output : resolve(output);
}

/** Describes the allowed paths if a path begins with `~`, which mgw does not expand; otherwise undefined. */
export function tildeProblem(path: string): string | undefined {
  if (!/^~([^/]*\/|$)/.test(path)) return undefined;
  return `a path without ~, which only a shell expands; ./${path} is in a folder named ~`;
}

/**
 * Describes the allowed outputs if an output is a URL of another kind, its bucket's name is invalid, or it has a
 * {@link tildeProblem}; otherwise undefined.
 */
export function outputProblem(output: string): string | undefined {
  if (!isUrl(output)) return tildeProblem(output);
  const [, bucket] = /^s3:\/\/([^/]*)/.exec(output) ?? [];
  if (bucket === undefined) return 'a path or s3://BUCKET/KEY';
  if (isBucketName(bucket)) return undefined;
  return `a path or s3://BUCKET/KEY; "${printableLine(bucket, 80)}" is not a bucket name (3 to 63 lower-case letters, digits, dots or hyphens)`;
}

/** Parses `s3://BUCKET/KEY`. @throws Error whose message states the allowed values. */
export function parseObjectUrl(text: string): { bucket: string; key: string } {
  const [, bucket = '', key = ''] = /^s3:\/\/([^/]*)\/(.+)$/su.exec(text) ?? [];
  const isValidKey = !/[\p{Cc}\\]/u.test(key) && key.split('/').every((step) => !/^\.{0,2}$/.test(step));
  if (!isBucketName(bucket) || !isValidKey || Buffer.byteLength(key) > 1024)
    throw new Error('an address such as s3://BUCKET/FOLDER/{id}.mp4');
  return { bucket, key };
}

/** The error message for `--sidecar` if the output is an object. */
export const sidecarMessage =
  '--sidecar writes a file next to the output, but --output is an object in a bucket.';

/**
 * Checks that a paying command's output is not a template, because most values are not known before the job exists.
 * Allows `{n}`, the position of a file among several, and `{id}` if `hasId` (default: true for objects).
 * @param label the flag or option that contains the output
 * @throws MgwError('usage') if the output is a template, or a folder in a bucket.
 */
export function checkNoTemplate(label: string, output = '', hasId = isObjectUrl(output)): void {
  const isObject = isObjectUrl(output);
  if (isObject && output.endsWith('/')) throw usageError(`${label} must be an object, not a folder.`);
  const [name] = (hasId ? /\{(?!n\}|id\})[^{}]*\}/ : /\{(?!n\})[^{}]*\}/).exec(output) ?? [];
  if (name === undefined) return;
  throw usageError(
    `${label}: ${name} is not known before the job exists. Use a file name here; a later fetch accepts templates.`,
  );
}
