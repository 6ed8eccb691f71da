import type { Command } from 'commander';
import type { Context } from '../../context.ts';
import { readLine } from '../../prompt.ts';
import { addFlags, type BodyOptions, camelCase, givenBody } from './body.ts';
import { usageError } from '../../../errors.ts';
import type { Listing } from '../../../flows/listing.ts';
import { protocolOfModel } from '../../../flows/model-protocol.ts';
import { printableLine } from '../../../printable.ts';
import { compose, longName } from '../../../protocols/compose.ts';
import { protocolNamed, protocolNames } from '../../../protocols/named.ts';
import type { Flag, Protocol } from '../../../protocols/protocol.ts';

/** The options that determine the protocol. */
export interface ChoiceOptions extends BodyOptions {
  model?: string;
}

const all: readonly Protocol[] = protocolNames.map(protocolNamed);

const modelText = 'the model, as mgw models lists it; the protocol follows from it';

/** Adds the flags of every protocol to `mgw video submit`, each with the protocols that have it. */
export function addAllFlags(command: Command): void {
  const byName = new Map<string, { flag: Flag; values: Set<string>; owners: string[] }>();
  for (const { name, flags } of all)
    for (const flag of flags) {
      const found = byName.get(longName(flag)) ?? { flag, values: new Set(), owners: [] };
      const value = /<([^.>]+)/.exec(flag.flags)?.[1];
      if (value !== undefined) found.values.add(value);
      found.owners.push(name);
      byName.set(longName(flag), found);
    }
  const merged = [...byName.values()].map(({ flag, values, owners }): Flag => ({
    ...flag,
    flags: flag.flags.replace(/<[^.>]+/, `<${[...values].join('|')}`),
    description:
      longName(flag) === 'model'
        ? modelText
        : `${flag.description}${owners.length < all.length ? ` (${owners.join(', ')})` : ''}`,
  }));
  addFlags(command, merged);
}

/** The values of `--endpoint`, of all protocols. */
export const allEndpoints = all.flatMap(({ endpoints = [] }) => endpoints);

/**
 * Finds the protocol of a submission from its model, and refuses flags that the protocol does not have.
 * @throws MgwError('usage') with the `protocols` to choose from, or naming the flag.
 */
export async function chooseProtocol(
  context: Context,
  options: ChoiceOptions,
  listing: Listing,
): Promise<Protocol> {
  const model = options.model ?? (await modelOfBody(context, options));
  if (model === undefined)
    throw usageError(`--model: missing; needed: the name of a model, as \`mgw models\` lists it`, [
      'mgw',
      'models',
    ]);
  const protocol = await protocolOfModel(context, model, listing, options);
  const given = new Set(Object.keys(options));
  const stray = all
    .flatMap(({ flags }) => flags.map(longName))
    .find((name) => given.has(camelCase(name)) && !protocol.flags.some((flag) => longName(flag) === name));
  const unknown = stray ?? (options.endpoint !== undefined && !protocol.endpoints ? 'endpoint' : undefined);
  if (unknown === undefined) return protocol;
  const text = `--${unknown} is not a flag of Protocol ${protocol.name.toUpperCase()}, which serves ${printableLine(model, 60)}.`;
  throw usageError(text, ['mgw', 'video', protocol.name, 'submit', '--help']);
}

// The field of the model has a different name in each protocol.
async function modelOfBody(
  context: Context,
  { body: source, set }: BodyOptions,
): Promise<string | undefined> {
  if (source === '@-' || source === '-')
    throw usageError('--body @-: the protocol follows from the model, so give --model too.');
  const body = await givenBody(context, source);
  const models = all.map((protocol) =>
    protocol.modelOf(protocol.normalise(compose(protocol, { body, flags: {}, set }))),
  );
  return models.find((model) => model !== undefined);
}

/** Asks on a terminal for the model of a submission that has none. Undefined if it has one, or if mgw may not ask. */
export async function missingModel(
  context: Context,
  protocol: Protocol | undefined,
  options: ChoiceOptions,
  listing: Listing,
): Promise<string | undefined> {
  const { io, progress } = context;
  const hasModel = options.model !== undefined || options.body !== undefined || options.check === false;
  if (hasModel || io.stdin.isTTY !== true || (await context.settings()).noInput.value) return undefined;
  if ((await modelOfBody(context, options)) !== undefined) return undefined;
  const listed = (await listing('check')) ?? [];
  const fitting = listed.filter(({ protocols }) =>
    protocol === undefined ? protocols.length > 0 : protocols.includes(protocol.name),
  );
  if (fitting.length > 0)
    progress.note(`Models: ${fitting.map(({ id }) => printableLine(id, 60)).join(', ')}`);
  return (await readLine(io, 'Model: ')).trim() || undefined;
}
