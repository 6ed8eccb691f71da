import { thisHost } from '../../../config/places.ts';
import { type CollectDeps, collectItems } from '../../../gallery/collect.ts';
import type { GalleryData } from '../../../gallery/data.ts';
import { pageHtml } from '../../../gallery/page-file.ts';
import { sizeOf } from '../../../gallery/links.ts';
import type { Job } from '../../../job.ts';
import { redactor, secretRedactor } from '../../../redact.ts';
import { version } from '../../../version.ts';
import type { Context } from '../../context.ts';
import { globalArguments } from '../../../flows/next.ts';
import { shellWord } from '../../output/human.ts';

/** The page of some jobs, with nothing in it of the key, of what signs an address, or of where on this machine things are. */
export async function galleryHtml(
  context: Context,
  jobs: readonly Job[],
  place: Pick<CollectDeps, 'hrefOf' | 'peaksOf'>,
  save?: GalleryData['save'],
): Promise<string> {
  const settings = await context.settings();
  const secrets = settings.key === undefined ? [] : [settings.key.read()];
  const withGlobals = ([mgw = '', ...rest]: readonly string[]): string =>
    [mgw, ...globalArguments(context.globals).flat(), ...rest].map(shellWord).join(' ');
  const { home, cwd } = thisHost();
  const deps: CollectDeps = {
    ...place,
    redact: redactor(secrets),
    sizeOf,
    commandText: withGlobals,
    folders: [home, cwd, settings.stateDir.value],
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
