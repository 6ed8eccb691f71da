import type { Settings } from '../config/resolve.ts';
import { type MgwError, usageError } from '../errors.ts';
import { isObject } from '../json.ts';
import { newestWithModel } from '../jobs/ref.ts';
import { nearestName } from '../nearest.ts';
import type { Model } from '../exchange.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { protocolNamed, protocolNames } from '../protocols/registry.ts';
import { shownValue, valueInFile } from '../protocols/violations.ts';
import { type Listing, recallModels } from './models.ts';
import type { Session } from './session.ts';

type ListedModel = Pick<Model, 'id' | 'protocols'>;

/**
 * Finds the one protocol that serves a model (design 1).
 * @param dryRun whether to skip the model list if the protocol is known without it
 * @throws MgwError('usage') with the `protocols` to choose from if several serve the model or none is known; with a
 * `correction` if the model list contains a similar model; with the command to use if the model makes speech or text.
 * Exit 3 or 6 if the model list is needed and could not be fetched.
 */
export async function protocolOfModel(
  session: Session,
  model: string,
  listing: Listing,
  { dryRun }: { dryRun?: boolean | undefined } = {},
): Promise<Protocol> {
  const settings = await session.settings();
  const knownProtocols = dryRun ? protocolsOfModel(model, settings, recallModels(settings)) : [];
  const use = protocolsOfModel(model, settings, []).length === 0 ? 'find' : 'check';
  const models = knownProtocols.length === 1 ? undefined : await listing(use);
  const [first, ...others] =
    knownProtocols.length === 1 ? knownProtocols : protocolsOfModel(model, settings, models ?? []);
  if (first !== undefined && others.length === 0) return protocolNamed(first);
  if (first !== undefined)
    throw protocolChoiceError(`${shownValue(model)} is served by ${protocolList([first, ...others])}.`, [
      first,
      ...others,
    ]);
  refuseOtherKind(models?.find(({ id }) => id === model));
  const ids = (models ?? []).map(({ id }) => id);
  const suggestion = nearestName(model, ids);
  const text = `No protocol is known for the model ${shownValue(model)}.`;
  if (suggestion === undefined || suggestion === model) throw protocolChoiceError(text, protocolNames);
  throw usageError(`${text} Did you mean ${shownValue(suggestion)}?`, ['mgw', 'models']).with({
    correction: { flags: ['-m', '--model'], value: suggestion },
  });
}

/**
 * Returns the protocol of the newest job with a model, so that the job can be resumed although the model list no longer
 * determines the protocol.
 * @throws `error` if there is no such job.
 */
export async function protocolOfJobs(session: Session, model: string, error: MgwError): Promise<Protocol> {
  const job = await newestWithModel(await session.ledger(), model);
  if (job === undefined) throw error;
  return protocolNamed(job.protocol);
}

// Refuses a model that the model list marks as a speech or text model, and not as a video model.
function refuseOtherKind(model: Pick<Model, 'id' | 'endpoints'> | undefined): void {
  const id = shownValue(model?.id ?? '');
  const otherKinds = [
    [/tts|speech/i, 'a speech model. To convert text to speech: mgw tts TEXT -o FILE', 'tts'],
    [
      /response|chat|completion/i,
      'a text model. To send it a prompt: mgw responses INPUT -m MODEL',
      'responses',
    ],
  ] as const;
  for (const [mark, text, command] of otherKinds)
    if (model?.endpoints.some((endpoint) => mark.test(endpoint)))
      throw usageError(`${id} is ${text}`, ['mgw', command, '--help']);
}

/**
 * Returns the names of the protocols that serve a model: according to the model list, else the specification, else the
 * model's configured defaults.
 */
export function protocolsOfModel(
  model: string,
  { videoDefaults = {} }: Pick<Settings, 'videoDefaults'>,
  models: readonly ListedModel[],
): string[] {
  // Protocol A model lists may prefix a model's name with `models/`.
  const id = model.replace(/^models\//, '');
  const listedProtocols = models.find((listed) => listed.id === id || listed.id === model)?.protocols ?? [];
  if (listedProtocols.length > 0) return [...listedProtocols];
  const specifiedProtocols = protocolNames.filter((name) => protocolNamed(name).models?.includes(id));
  if (specifiedProtocols.length > 0) return specifiedProtocols;
  const hasDefaults = (of: unknown): boolean => isObject(of) && Object.hasOwn(of, id);
  return protocolNames.filter((name) => hasDefaults(videoDefaults[name]));
}

/** Whether a protocol is known to serve a model. Does not fetch the model list. */
export function isKnownToServe(protocol: Protocol, model: string, settings: Settings): boolean {
  if (protocol.models?.includes(model)) return true;
  const models = modelCache.get(settings) ?? recallModels(settings);
  modelCache.set(settings, models);
  return protocolsOfModel(model, settings, models).includes(protocol.name);
}

// Cached because every row of a batch needs the models.
const modelCache = new WeakMap<Settings, readonly ListedModel[]>();

/**
 * Refuses a model of a different protocol before anything is sent.
 * @param models the model list; empty if it was not fetched
 * @param isQuoted whether the message may quote the model; a value from a file must not be quoted
 * @throws MgwError('usage') with the `protocols` that serve the model.
 */
export function refuseOtherProtocol(
  protocol: Protocol,
  model: string,
  models: readonly ListedModel[],
  isQuoted = true,
): void {
  const servingProtocols = protocolsOfModel(model, { videoDefaults: {} }, models);
  if (servingProtocols.length === 0 || servingProtocols.includes(protocol.name)) return;
  const quotedModel = isQuoted ? shownValue(model) : valueInFile;
  const text = `${quotedModel} is served by ${protocolList(servingProtocols)}, not by ${protocolList([protocol.name])}.`;
  throw protocolChoiceError(text, servingProtocols);
}

function protocolChoiceError(text: string, protocols: readonly string[]): Error {
  return usageError(text).with({ protocols });
}

function protocolList(names: readonly string[]): string {
  return `Protocol${names.length > 1 ? 's' : ''} ${names.map((name) => name.toUpperCase()).join(' and ')}`;
}
