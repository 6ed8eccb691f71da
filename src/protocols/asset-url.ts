import { reachOf } from '../http/reach.ts';
import { isStoredName } from './local-asset.ts';

/**
 * What is wrong with an asset's URL, in words that follow "it" (`points into a private network`); undefined
 * where it may be sent. Only http(s) addresses that the public internet can reach are accepted (specification
 * 2.3 and 8), and names of uploaded files. Host names are judged as written: nothing is looked up.
 */
export function checkAssetUrl(url: string): string | undefined {
  if (isStoredName(url)) return undefined;
  if (!/^https?:\/\//i.test(url)) return 'is not an http:// or https:// URL';
  if (/[\s\p{Cc}\p{Cf}\\]/u.test(url)) return 'holds white space, a control character or a backslash';
  if (!URL.canParse(url)) return 'cannot be read as a URL';
  const { username, password, hostname } = new URL(url);
  if (username !== '' || password !== '') return 'holds a user name or password';
  return reachOf(hostname) !== 'public' ? 'points into a private network' : undefined;
}
