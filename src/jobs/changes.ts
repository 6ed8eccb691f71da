import type { Job } from '../job.ts';
import type { Json } from '../json.ts';
import { differences } from './differences.ts';
import { isSameGateway, type Order, recordedBody } from './order.ts';

/**
 * Describes how an order differs from the request of a job with another fingerprint or variant: the gateway, the
 * protocol and the fields, eight lines at most.
 * @param isHidden whether to omit the values of a field
 */
export function changesFrom(
  job: Job,
  { protocol, body, variant }: Pick<Order, 'protocol' | 'body' | 'variant'>,
  gateway: string,
  isHidden?: (path: string) => boolean,
): string[] {
  const changes = differences(job.request as Json, recordedBody(body).request, isHidden);
  if (job.protocol !== protocol) changes.unshift(`the protocol was ${job.protocol}, is ${protocol}`);
  if (!isSameGateway(job.base_url, gateway))
    changes.unshift(`the gateway was ${shownGateway(job.base_url)}, is ${shownGateway(gateway)}`);
  if (changes.length > 0) return changes.slice(0, 8);
  // A WAV file is requested as PCM, so both have the same body.
  return job.record.variant === variant
    ? ['the request differs']
    : [`the format was ${job.record.variant ?? 'pcm'}, is ${variant ?? 'pcm'}`];
}

// Omits credentials and the query, which an imported record may contain. The sandbox's name is not a URL.
function shownGateway(gateway: string): string {
  if (!URL.canParse(gateway)) return gateway;
  const { origin, pathname } = new URL(gateway);
  return `${origin}${pathname}`.replace(/\/$/, '');
}
