import { dirname } from 'node:path';
import { Links, sizeOf } from '../../../gallery/links.ts';
import { copyFiles, pagePath, writePage } from '../../../gallery/page-file.ts';
import { Peaks } from '../../../gallery/peaks.ts';
import type { Job } from '../../../job.ts';
import type { Context } from '../../context.ts';
import type { Outcome } from '../../output/outcome.ts';
import type { GalleryOptions } from './gallery-options.ts';
import { galleryHtml } from './gallery-data.ts';

/** Writes the page of some jobs. @throws MgwError: exit 10 where it cannot be written, or stands in another page's place. */
export async function writeGallery(
  context: Context,
  jobs: readonly Job[],
  { output = '.', force = false, copy = false }: GalleryOptions,
): Promise<Outcome> {
  if (jobs.length === 0) context.progress.note('No jobs: the page is empty.');
  const path = pagePath(output);
  const copies = new Map<string, string>();
  if (copy) for (const job of jobs) for (const [from, to] of await copyFiles(job, path)) copies.set(from, to);
  const links = new Links(dirname(path));
  const hrefOf = ({ files }: Job, index: number): string | undefined => {
    const file = files[index]?.path;
    return file === undefined ? undefined : links.to(copies.get(file) ?? file);
  };
  const peaks = new Peaks();
  const html = await galleryHtml(context, jobs, { hrefOf, peaksOf: (file) => peaks.of(file.path) });
  await writePage(path, html, force);
  const far = jobs.flatMap((job) =>
    job.files.filter((file, index) => sizeOf(file.path) !== undefined && hrefOf(job, index) === undefined),
  );
  if (far.length > 0)
    context.progress.note(
      `${far.length} files are too far away to be linked from ${dirname(path)}: --copy puts them there.`,
    );
  return { json: { gallery: { path, jobs: jobs.length, bytes: Buffer.byteLength(html) } }, text: path };
}
