import { dirname } from 'node:path';
import type { Context } from '../../context.ts';
import { interruptions, write } from '../../io.ts';
import { commandText } from '../../output/human.ts';
import type { Outcome } from '../../output/outcome.ts';
import { thisHost } from '../../../config/places.ts';
import { currencyOf } from '../../../flows/prices.ts';
import { type CollectDeps, collectItems } from '../../../gallery/collect.ts';
import type { GalleryData } from '../../../gallery/data.ts';
import { Links, Peaks } from '../../../gallery/files.ts';
import { copyFiles, pageHtml, pagePath, writePage } from '../../../gallery/page-file.ts';
import { startGallery } from '../../../gallery/server.ts';
import { type FileState, isIntact, stateBySize } from '../../../files/whole-file.ts';
import type { Job, JobFile } from '../../../job.ts';
import { rateJob } from '../../../jobs/view.ts';
import { redactor, secretRedactor, withoutSignatures } from '../../../redact.ts';
import { version } from '../../../installation.ts';

/** The flags of `jobs gallery`. */
export interface GalleryOptions {
  batch?: string;
  since?: string;
  limit?: number;
  output?: string;
  force?: boolean;
  copy?: boolean;
  serve?: boolean;
  port?: number;
}

// Returns the gallery's HTML, without the key, URL signatures and local folder names.
async function galleryHtml(
  context: Context,
  jobs: readonly Job[],
  place: Pick<CollectDeps, 'hrefOf' | 'peaksOf' | 'fileState'>,
  save?: GalleryData['save'],
): Promise<string> {
  const settings = await context.settings();
  const secrets = settings.key === undefined ? [] : [settings.key.read()];
  const withGlobals = (command: readonly string[]): string => commandText(command, context.globals);
  const { home, cwd } = thisHost();
  const redact = redactor(secrets);
  const deps: CollectDeps = {
    ...place,
    redact: (text) => withoutSignatures(redact(text)),
    commandText: withGlobals,
    folders: [home, cwd, settings.stateDir.value],
    currency: currencyOf(settings),
  };
  const data: GalleryData = {
    mgw: version,
    made: new Date(context.clock.now()).toISOString(),
    save,
    commands: {
      rate: withGlobals(['mgw', 'jobs', 'rate', '--import', 'ratings.json']),
      redo: withGlobals(['mgw', 'batch', 'run', 'redo.jsonl', '-o', 'redo/{id}.{ext}']),
    },
    items: await collectItems(jobs, await context.ledger(), deps),
  };
  return pageHtml(data, secretRedactor(secrets));
}

/** Serves a gallery on this machine until interrupted. Each request reads the current ledger. */
export async function serveGallery(
  context: Context,
  jobs: () => Promise<Job[]>,
  { port = 0 }: GalleryOptions,
): Promise<Outcome> {
  const ledger = await context.ledger();
  // Loads the key, so that `redact` removes it from notes.
  await context.hideKey();
  const { soft } = interruptions();
  const server = await startGallery(port, {
    // Omits waveforms, because a served page can compute them from the files.
    page: async (hrefOf, save) => {
      const peaksOf = (): Promise<undefined> => Promise.resolve(undefined);
      return galleryHtml(context, await jobs(), { hrefOf, peaksOf, fileState: stateBySize }, save);
    },
    fileOf: async (id, index) => (await ledger.read(id))?.files[index],
    rate: async ({ job, rating, note }) => {
      await rateJob(ledger, job, { rating, note: note && context.redact(note) });
    },
  });
  const json = { url: server.url };
  await write(context.io.stdout, context.globals.json ? `${JSON.stringify(json)}\n` : `${server.url}\n`);
  context.progress.note('Open this address in a browser. Press Ctrl-C to stop the server.');
  await new Promise((resolve) => soft.addEventListener('abort', resolve, { once: true }));
  await server.close();
  return { json: {}, silent: true };
}

/**
 * Writes a gallery of jobs as an HTML page.
 * @throws MgwError: exit 10 if the page cannot be written, or would overwrite a file that is not an mgw gallery.
 */
export async function writeGallery(
  context: Context,
  jobs: readonly Job[],
  { output = '.', force = false, copy = false }: GalleryOptions,
): Promise<Outcome> {
  if (jobs.length === 0) context.progress.note('No job matches, so the page is empty.');
  const path = pagePath(output);
  // By file, not by path, because several jobs may have saved to one path.
  const copies = new Map<JobFile, string>();
  if (copy) for (const job of jobs) for (const [from, to] of await copyFiles(job, path)) copies.set(from, to);
  const links = new Links(dirname(path));
  const hrefOf = ({ files }: Job, index: number): string | undefined => {
    const file = files[index];
    return file === undefined ? undefined : links.to(copies.get(file) ?? file.path);
  };
  const intact = new Set<JobFile>();
  for (const file of jobs.flatMap(({ files }) => files))
    if (copy ? copies.has(file) : await isIntact(file)) intact.add(file);
  const fileState = (file: JobFile): FileState => {
    if (intact.has(file)) return 'intact';
    return stateBySize(file) === 'gone' ? 'gone' : 'changed';
  };
  const peaks = new Peaks();
  const place = { hrefOf, peaksOf: (file: JobFile) => peaks.of(file.path), fileState };
  const html = await galleryHtml(context, jobs, place);
  await writePage(path, html, force);
  const unlinkable = jobs.flatMap((job) =>
    job.files.filter((file, index) => intact.has(file) && hrefOf(job, index) === undefined),
  );
  if (unlinkable.length > 0)
    context.progress.note(
      `${unlinkable.length} files cannot be linked from ${dirname(path)}. To copy them there, use --copy.`,
    );
  return { json: { gallery: { path, jobs: jobs.length, bytes: Buffer.byteLength(html) } }, text: path };
}
