import { createHash, randomBytes } from 'node:crypto';
import { constants, existsSync } from 'node:fs';
import { copyFile, link, open, realpath, rename, rm } from 'node:fs/promises';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { script, style } from 'virtual:gallery-page';
import { localError, MgwError } from '../errors.ts';
import { makeFolder } from '../files/make-folder.ts';
import { intactVersion, stateBySize } from '../files/whole-file.ts';
import type { Job, JobFile } from '../job.ts';
import type { GalleryData } from './data.ts';

/** Returns the page's absolute path. `given` is a folder, or a file whose name ends in `.html`. */
export function pagePath(path: string): string {
  return extname(path).toLowerCase() === '.html' && !/[\\/]$/.test(path)
    ? resolve(path)
    : resolve(path, 'index.html');
}

/**
 * Writes a page atomically.
 * @throws MgwError, exit 10, if the existing file is not a gallery made by mgw, or the page cannot be written.
 */
export async function writePage(path: string, html: string, force: boolean): Promise<void> {
  if (!force) await checkOwn(path);
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await makeFolder(dirname(path), 0o777);
    const file = await open(draft, 'wx');
    try {
      await file.writeFile(html);
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw localError(error, path, 'no');
  }
}

async function checkOwn(path: string): Promise<void> {
  if (!existsSync(path) || (await isOwn(path))) return;
  throw new MgwError(
    'output_exists',
    `${path} exists and is not a gallery made by mgw. To replace it: --force.`,
    {
      retry: 'safe',
    },
  );
}

// Whether an existing page was made by mgw. False for a folder, and for a file that cannot be read.
async function isOwn(path: string): Promise<boolean> {
  try {
    const file = await open(path, 'r');
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(4096), 0, 4096, 0);
      return buffer.toString('latin1', 0, bytesRead).includes(generator);
    } finally {
      await file.close();
    }
  } catch {
    return false;
  }
}

/** The name of the folder for copied files, next to the page. */
const mediaFolder = 'media';

/**
 * Copies a job's files to a folder next to a page, as hard links if possible. Returns the copies' paths. Skips a file
 * that does not have the recorded content, because an imported record may refer to any of the user's files.
 * @throws MgwError('local_io'), exit 10.
 */
export async function copyFiles(job: Job, page: string): Promise<Map<JobFile, string>> {
  const copies = new Map<JobFile, string>();
  for (const [index, file] of job.files.entries()) {
    const { path } = file;
    if (stateBySize(file) !== 'intact') continue;
    // The number distinguishes files of the same name in different folders.
    const copy = join(dirname(page), mediaFolder, `${job.id}-${index + 1}-${basename(path)}`);
    try {
      if ((await intactVersion({ ...file, path: copy })) === undefined) {
        await makeFolder(dirname(copy), 0o777);
        await rm(copy, { force: true });
        // Resolve the path, because a hard link to a symbolic link would itself be a symbolic link.
        await link(await realpath(path), copy).catch(() => copyFile(path, copy, constants.COPYFILE_FICLONE));
      }
      // Verify the copy, not the source, because the source may be replaced during the copy.
      if ((await intactVersion({ ...file, path: copy })) !== undefined) copies.set(file, copy);
      else await rm(copy, { force: true });
    } catch (error) {
      throw localError(error, copy, 'no');
    }
  }
  return copies;
}

/** Identifies a page made by mgw, so that no other file is overwritten. */
const generator = '<meta name="generator" content="mgw gallery">';

/**
 * Returns the page as HTML, with its script and style included and with links to the media. No prompt can begin or end
 * an element, and the page's policy allows only its own script.
 * @param redact removes the key from the data
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

// Returns a policy that allows the page to load resources only from its own origin, or from the disk if the page is a
// file.
function policy(): string {
  return [
    "default-src 'none'",
    `script-src ${cspHashOf(script)}`,
    `style-src ${cspHashOf(style)}`,
    "media-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
}

function cspHashOf(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

/** Serializes JSON without characters that are special in HTML or that end a line in JavaScript. */
function jsonInHtml(value: unknown): string {
  return JSON.stringify(value).replace(
    /[<>&\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
