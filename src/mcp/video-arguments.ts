import { readFile } from 'node:fs/promises';
import * as z from 'zod';
import { messageOf, MgwError, usageError } from '../errors.ts';
import { composeVideo } from '../flows/compose-video.ts';
import { type Listing, oneListing } from '../flows/listing.ts';
import { protocolOfModel } from '../flows/model-protocol.ts';
import { printableLine } from '../printable.ts';
import { type FlagValue, longName } from '../protocols/compose.ts';
import { protocolNamed, protocolNames } from '../protocols/named.ts';
import type { Flag, Protocol } from '../protocols/protocol.ts';
import type { Tools } from './tool.ts';

type Given = Record<string, unknown>;

/** Returns a video composed from the arguments. @throws MgwError('usage') naming everything that is wrong. */
export async function composedVideo(
  tools: Tools,
  { protocol: named, ...given }: Given,
): ReturnType<typeof composeVideo> {
  const listing = oneListing(tools.session);
  const protocol = await chosenProtocol(tools, listing, named, given['model']);
  const flags: Record<string, FlagValue> = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    const flag = protocol.flags.find((each) => longName(each) === name);
    if (flag === undefined)
      throw usageError(`${name} is no argument of a video of Protocol ${protocol.name.toUpperCase()}.`);
    flags[name] = await flagValue(tools, flag, name, value);
  }
  return composeVideo(tools.session, protocol, { flags }, listing);
}

async function chosenProtocol(
  { session }: Tools,
  listing: Listing,
  named: unknown,
  model: unknown,
): Promise<Protocol> {
  if (typeof named === 'string') return protocolNamed(named);
  if (typeof model !== 'string') throw usageError('model: missing; models lists those that the key may use.');
  return protocolOfModel(session, model, listing);
}

const largestInputBytes = 64 * 1024 * 1024;

async function flagValue(tools: Tools, flag: Flag, name: string, value: unknown): Promise<FlagValue> {
  if (flag.kind === 'switch') {
    if (typeof value === 'boolean') return value;
    throw usageError(`${name}: give true or false.`);
  }
  const texts = [value].flat().map(String);
  if (flag.kind === 'list') return texts;
  const [text = '', ...more] = texts;
  if (more.length > 0) throw usageError(`${name} takes one value.`);
  if (flag.atFile === true && text.startsWith('@'))
    throw usageError(`${name}: give the value itself; a file is not read.`);
  if (flag.kind !== 'file') return text;
  const path = await tools.root.file(text, name);
  try {
    const bytes = await readFile(path);
    if (bytes.length <= largestInputBytes) return bytes;
  } catch (error) {
    throw usageError(`${name}: ${printableLine(text, 200)} cannot be read: ${messageOf(error)}`);
  }
  throw new MgwError('usage', `${name}: ${printableLine(text, 200)} is larger than 64 MiB.`);
}

const one = z.optional(z.union([z.string(), z.number()]));
const list = z.optional(z.union([z.array(z.union([z.string(), z.number()])), z.string(), z.number()]));
const onOrOff = z.optional(z.boolean());

/** The arguments of a video: the flags of all protocols, each described for the protocols that have it. */
export const videoFields: Record<string, z.ZodOptional> = {
  protocol: z.optional(z.enum(protocolNames)).describe('the protocol that serves the model; see models'),
  ...Object.fromEntries(
    [...flagTexts()].map(([name, { kind, text }]) => [name, fieldOf(kind).describe(text)]),
  ),
};

function fieldOf(kind: Flag['kind']): z.ZodOptional {
  return kind === 'switch' ? onOrOff : kind === 'list' ? list : one;
}

function flagTexts(): Map<string, { kind: Flag['kind']; text: string }> {
  const flags = new Map<string, { kind: Flag['kind']; texts: Map<string, string[]> }>();
  for (const protocol of protocolNames)
    for (const flag of protocolNamed(protocol).flags) {
      const { kind, description } = flag;
      const known = flags.get(longName(flag)) ?? { kind, texts: new Map<string, string[]>() };
      known.texts.set(description, [...(known.texts.get(description) ?? []), protocol]);
      flags.set(longName(flag), { ...known, kind });
    }
  return new Map(
    [...flags].map(([name, { kind, texts }]) => {
      const parts = [...texts].map(([text, names]) => `${names.join(', ')}: ${text}`);
      return [name, { kind, text: parts.join('; ') }];
    }),
  );
}
