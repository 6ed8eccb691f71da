import type { Settings } from '../config/resolve.ts';
import { usageError } from '../errors.ts';
import { isObject } from '../json.ts';
import { nearestName } from '../nearest.ts';
import type { Model } from '../exchange.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { protocolNamed, protocolNames } from '../protocols/registry.ts';
import { shownValue, valueInFile } from '../protocols/violations.ts';
import { type Listing, recallModels } from './models.ts';
import type { Session } from './session.ts';

type Listed = Pick<Model, 'id' | 'protocols'>;

/**
 * Finds the one protocol that serves a model (design 1).
 * @param dryRun do not fetch the listing if the protocol is known without it
 * @throws MgwError('usage') with `protocols` to choose from if two serve the model, or none is known; exit 3 or 6 if
 * only the listing can tell, and it could not be fetched.
 */
export async function protocolOfModel(
  session: Session,
  model: string,
  listing: Listing,
  { dryRun }: { dryRun?: boolean | undefined } = {},
): Promise<Protocol> {
  const settings = await session.settings();
  const local = dryRun ? protocolsOfModel(model, settings, recallModels(settings)) : [];
  const use = protocolsOfModel(model, settings, []).length === 0 ? 'find' : 'check';
  const models = local.length === 1 ? undefined : await listing(use);
  const [only, ...others] = local.length === 1 ? local : protocolsOfModel(model, settings, models ?? []);
  if (only !== undefined && others.length === 0) return protocolNamed(only);
  if (only !== undefined)
    throw choiceOf(`${shownValue(model)} is served by ${several([only, ...others])}.`, [only, ...others]);
  const ids = (models ?? []).map(({ id }) => id);
  const meant = nearestName(model, ids);
  const hint = meant === undefined || meant === model ? '' : ` Did you mean ${shownValue(meant)}?`;
  throw choiceOf(`No protocol is known for the model ${shownValue(model)}.${hint}`, protocolNames);
}

/**
 * Returns the names of the protocols that serve a model: by the marks of the listing, else by the specification, else
 * by the configured defaults of that model.
 */
export function protocolsOfModel(
  model: string,
  { videoDefaults = {} }: Pick<Settings, 'videoDefaults'>,
  models: readonly Listed[],
): string[] {
  // Protocol A's listings may give the name with the prefix of its path.
  const id = model.replace(/^models\//, '');
  const marked = models.find((listed) => listed.id === id || listed.id === model)?.protocols ?? [];
  if (marked.length > 0) return [...marked];
  const specified = protocolNames.filter((name) => protocolNamed(name).models?.includes(id));
  if (specified.length > 0) return specified;
  const hasDefaults = (of: unknown): boolean => isObject(of) && Object.hasOwn(of, id);
  return protocolNames.filter((name) => hasDefaults(videoDefaults[name]));
}

/** Whether a protocol is known to serve a model without fetching the listing. */
export function isKnownToServe(protocol: Protocol, model: string, settings: Settings): boolean {
  if (protocol.models?.includes(model)) return true;
  const known = recalled.get(settings) ?? recallModels(settings);
  recalled.set(settings, known);
  return protocolsOfModel(model, settings, known).includes(protocol.name);
}

// Cached, since each row of a batch needs the models.
const recalled = new WeakMap<Settings, readonly Listed[]>();

/**
 * Refuses a model of another protocol before anything is sent.
 * @param models the listing; empty if it was not fetched
 * @param isQuoted whether the message may name the model; a value from a file is not quoted
 * @throws MgwError('usage') with the `protocols` that serve the model.
 */
export function refuseOtherProtocol(
  protocol: Protocol,
  model: string,
  models: readonly Listed[],
  isQuoted = true,
): void {
  const serving = protocolsOfModel(model, { videoDefaults: {} }, models);
  if (serving.length === 0 || serving.includes(protocol.name)) return;
  const shown = isQuoted ? shownValue(model) : valueInFile;
  const text = `${shown} is served by ${several(serving)}, not by ${several([protocol.name])}.`;
  throw choiceOf(text, serving);
}

function choiceOf(text: string, protocols: readonly string[]): Error {
  return usageError(text).with({ protocols });
}

function several(names: readonly string[]): string {
  return `Protocol${names.length > 1 ? 's' : ''} ${names.map((name) => name.toUpperCase()).join(' and ')}`;
}
