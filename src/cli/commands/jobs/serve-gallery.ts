import type { Job } from '../../../job.ts';
import { rateJob } from '../../../jobs/rate.ts';
import { startGallery } from '../../../gallery/server.ts';
import type { Context } from '../../context.ts';
import { write } from '../../io.ts';
import type { Outcome } from '../../output/outcome.ts';
import { interruptions } from '../../signals.ts';
import type { GalleryOptions } from './gallery-options.ts';
import { galleryHtml } from './gallery-data.ts';

/** Shows the page of some jobs on this machine until it is interrupted; each visit sees the ledger as it is then. */
export async function serveGallery(
  context: Context,
  jobs: () => Promise<Job[]>,
  { port = 0 }: GalleryOptions,
): Promise<Outcome> {
  const ledger = await context.ledger();
  const { soft } = interruptions();
  const server = await startGallery(port, {
    // The page reads the sounds itself.
    page: async (hrefOf, save) =>
      galleryHtml(context, await jobs(), { hrefOf, peaksOf: () => Promise.resolve(undefined) }, save),
    fileOf: async (id, index) => (await ledger.read(id))?.files[index],
    rate: async ({ job, rating, note }) => {
      await rateJob(ledger, job, { rating, note });
    },
  });
  const json = { url: server.url };
  await write(context.io.stdout, context.globals.json ? `${JSON.stringify(json)}\n` : `${server.url}\n`);
  context.progress.note('Open this address in a browser; Ctrl-C ends it.');
  await new Promise((resolve) => soft.addEventListener('abort', resolve, { once: true }));
  await server.close();
  return { json: {}, silent: true };
}
