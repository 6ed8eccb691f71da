import type { Row } from '../../../batch/manifest/row.ts';
import { fixedExtension, type OutputPlace } from '../../../jobs/output-template.ts';
import type { Work } from '../../../batch/work.ts';
import { usageError } from '../../../errors.ts';
import type { Model } from '../../../protocols/model.ts';
import type { ListingUse, Protocol } from '../../../protocols/protocol.ts';
import { protocolNamed } from '../../../protocols/named.ts';
import { composeSpeech } from '../../../speech/compose.ts';
import type { Context } from '../../context.ts';
import { readInputText } from '../../input-file.ts';
import { listedModels, type Listing } from '../../../flows/compose-video.ts';
import { composedVideo } from '../video/body.ts';

/** Composes and checks the rows of a batch as `video X submit` and `tts` would; the listing is asked for once. */
export function rowComposer(context: Context, place: OutputPlace): (row: Row) => Promise<Work> {
  const listing = oneListing(context);
  return async (row) => {
    if (row.kind === 'tts') return speechWork(row, place, context);
    return videoWork(row, protocolNamed(row.kind), context, listing);
  };
}

async function videoWork(row: Row, protocol: Protocol, context: Context, listing: Listing): Promise<Work> {
  const { flags, set, body: given, endpoint } = row;
  const options = { ...camelCased(flags), set, body: given, endpoint };
  return (await composedVideo(context, protocol, undefined, options, listing)).video;
}

async function speechWork(row: Row, place: OutputPlace, context: Context): Promise<Work> {
  const { flags, set, text, file, output } = row;
  if (text !== undefined && file !== undefined) throw usageError('Give text or file, not both.');
  if (text === undefined && file === undefined)
    throw usageError('text: missing; needed: what is spoken, or file');
  const spoken = text ?? plain(await readInputText(file ?? '', 'file'));
  const rate = flags['sample-rate'];
  const fields = {
    set,
    ...(typeof flags['format'] === 'string' && { format: flags['format'] }),
    ...(typeof flags['speaker'] === 'string' && { speaker: flags['speaker'] }),
    ...(rate !== undefined && { sampleRate: Number(rate) }),
  };
  const target = `speech${fixedExtension(output ?? place.template)}`;
  return { protocol: 'tts', ...composeSpeech(spoken, target, fields, await context.settings()) };
}

function plain(text: string): string {
  return text.replace(/^\ufeff/, '').replace(/\r?\n$/, '');
}

function camelCased(flags: Row['flags']): Row['flags'] {
  const entries = Object.entries(flags).map(([name, value]) => [
    name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  return Object.fromEntries(entries) as Row['flags'];
}

function oneListing(context: Context): Listing {
  const asked = new Map<ListingUse, Promise<Model[] | undefined>>();
  let found: Model[] | undefined;
  return async (use) => {
    if (found !== undefined) return found;
    const answer = asked.get(use) ?? listedModels(context, use);
    asked.set(use, answer);
    return (found = await answer);
  };
}
