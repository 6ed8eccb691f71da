import { isLoopbackHost } from './exchange.ts';

/** Reads `s3://BUCKET/PREFIX`. @throws Error whose message says what is allowed. */
export function parseStoreUrl(text: string): { bucket: string; prefix: string } {
  const [, bucket, prefix = ''] =
    /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([\w!.*'()/-]*))?$/.exec(text) ?? [];
  if (bucket === undefined || prefix.split('/').some((step) => step === '.' || step === '..'))
    throw new Error('an address such as s3://BUCKET/PREFIX');
  return { bucket, prefix };
}

/** Reads the address of a service. @throws Error whose message says what is allowed. */
export function parseEndpoint(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPlain = url?.protocol === 'http:' && isLoopbackHost(url.hostname);
  if (url === undefined || (url.protocol !== 'https:' && !isPlain) || url.username || url.search || url.hash)
    throw new Error('an https:// address without a query (http:// on loopback only)');
  return url;
}
