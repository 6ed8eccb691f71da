import { startsMp4 } from './mp4.ts';

/** The number of first bytes of a body that {@link isText} needs. */
export const headBytes = 64;

/**
 * Whether a body is text (JSON, HTML, XML, plain) and not media, by its type and first bytes. An MP4 is media whatever
 * its type.
 */
export function isText(head: Uint8Array, contentType: string | undefined): boolean {
  if (startsMp4(head)) return false;
  if (isTextType(contentType)) return true;
  const start = Buffer.from(head)
    .toString('latin1')
    .replace(/^\xef\xbb\xbf/, '')
    .trimStart();
  if (/^text\//i.test(contentType ?? '')) return !/[\0-\x08\x0e-\x1a]/.test(start);
  return /^(\{\s*["}]|\[\s*["{[\]]|<[!?a-z])/i.test(start);
}

/** Whether a content type is never that of media. */
export function isTextType(contentType: string | undefined): boolean {
  return /^\s*(text\/(html|xml|json)|application\/([\w.-]+\+)?(json|xml))\b/i.test(contentType ?? '');
}

/** The MIME type of a body, from its bytes if they identify it, else from its header; undefined if neither does. */
export function mimeOf(isMp4: boolean, contentType: string | undefined): string | undefined {
  const stated = (contentType ?? '').replace(/;.*/s, '').trim().toLowerCase();
  if (/^(video|audio|image)\/[\w.+-]+$/.test(stated)) return stated;
  return isMp4 ? 'video/mp4' : undefined;
}
