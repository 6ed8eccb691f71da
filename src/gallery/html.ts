import { createHash } from 'node:crypto';
import { script, style } from 'virtual:gallery-page';
import type { GalleryData } from './data.ts';

/** By what a page of mgw's is known, so that no other is overwritten. */
export const generator = '<meta name="generator" content="mgw gallery">';

/**
 * The page as one text of HTML: its script and its style stand in it, the media are linked. Whatever a prompt says, the data are
 * JSON in which no element can end or begin, and the page's policy lets nothing run but the one script.
 * @param redact takes the key out of the data, in whatever it stands
 */
export function pageHtml(data: GalleryData, redact: (text: string) => string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy()}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
${generator}
<title>mgw gallery</title>
<style>${style}</style>
</head>
<body>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="data">${redact(jsonInHtml(data))}</script>
<script>${script}</script>
</body>
</html>
`;
}

// Nothing is fetched from elsewhere: media come from where the page does, which for a file is the disk.
function policy(): string {
  return [
    "default-src 'none'",
    `script-src ${hashOf(script)}`,
    `style-src ${hashOf(style)}`,
    "media-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

function hashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

/** JSON that means the same and in which HTML sees no element, and JavaScript no end of a line. */
export function jsonInHtml(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
