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
import type { Tools } from './tools.ts';

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

/** The arguments of a video: the flags of all protocols. */
export function videoFields(): Record<string, z.ZodOptional> {
  const fields: Record<string, z.ZodOptional> = {
    protocol: z.optional(z.enum(protocolNames).describe('the protocol that serves the model; see models')),
  };
  const about = new Map<string, Map<string, string[]>>();
  for (const name of protocolNames) {
    for (const flag of protocolNamed(name).flags) {
      const texts = about.get(longName(flag)) ?? new Map<string, string[]>();
      about.set(longName(flag), texts.set(flag.description, [...(texts.get(flag.description) ?? []), name]));
      fields[longName(flag)] = z.optional(typeOf(flag));
    }
  }
  for (const [name, texts] of about) {
    const description = [...texts].map(([text, names]) => `${names.join(', ')}: ${text}`).join('; ');
    const field = fields[name];
    if (field !== undefined) fields[name] = z.optional(field.describe(description));
  }
  return fields;
}

function typeOf({ kind }: Flag): z.ZodType {
  if (kind === 'switch') return z.boolean();
  const one = z.union([z.string(), z.number()]);
  return kind === 'list' ? z.union([z.array(one), one]) : one;
}
