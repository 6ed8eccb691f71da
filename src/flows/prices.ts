import {
  jobCost,
  parsePrice,
  speechUnits,
  videoUnits,
  type Multipliers,
  type Price,
  type Unit,
} from '../budget/prices.ts';
import type { Settings } from '../config/resolve.ts';
import { originText, type Setting } from '../config/layers.ts';
import { parseAmount } from '../decimal.ts';
import { messageOf, MgwError } from '../errors.ts';
import type { JobKind } from '../job.ts';
import type { Order } from '../jobs/order.ts';
import type { JsonObject } from '../json.ts';
import type { Model } from '../exchange.ts';
import type { Flag, Quantity } from '../protocols/protocol.ts';
import { compose, longName } from '../protocols/compose.ts';
import type { PricedOrder } from '../payment/reserve.ts';
import { protocolNamed, protocolNames } from '../protocols/registry.ts';
import { priceText } from '../sandbox/models.ts';
import { speechFlags, speechQuantity } from '../speech/flags.ts';
import { speechModel } from '../speech/wire.ts';

/** The parts of a submission that determine its price. */
export type PriceQuery = Pick<Order, 'protocol' | 'model' | 'body'>;

/**
 * Returns the maximum cost of a submission, based on the prices in the settings or the sandbox.
 * @throws MgwError('config') if the configured price cannot be read.
 */
export function priceOf({ protocol: kind, model = '', body }: PriceQuery, settings: Settings): PricedOrder {
  const subject = kind === 'tts' ? 'speech' : `${model || 'no model'} (Protocol ${kind.toUpperCase()})`;
  const key = priceKey(kind, model);
  const text = priceSetting(kind, model, settings);
  const price = text && readPrice(key, text, kind);
  // The configured multipliers are for real money and do not apply to the sandbox.
  const factors = settings.sandbox.value ? {} : multipliersIn(settings);
  const cost = price && jobCost(price, quantityOf(kind, body as JsonObject), factors);
  const canBeSet = !settings.sandbox.value && (kind === 'tts' || model !== '');
  return {
    subject,
    cost,
    currency: currencyOf(settings),
    ...(canBeSet && { priceCommand: priceCommand(key, kind) }),
  };
}

/** Returns the currency's name. Sandbox amounts are in credits. */
export function currencyOf({ sandbox, currency }: Pick<Settings, 'sandbox' | 'currency'>): string {
  return sandbox.value ? 'credits' : currency.value;
}

/** Returns a model's price from the settings or the sandbox; undefined if none is known. */
export function priceSetting(kind: JobKind, model: string, settings: Settings): Setting<string> | undefined {
  return settings.sandbox.value ? sandboxPrice(kind, model) : settings.priceOf(kind, model);
}

/** A model's price under one protocol. */
export interface ModelPrice {
  protocol: string;
  /** The price as configured. */
  price: string;
  /** The maximum cost of the clip; absent if no clip was specified or the price does not determine it. */
  cost?: string;
}

/**
 * Returns a model's known prices, each with the maximum cost of a clip.
 * @param model a model with the protocols that serve it; if the list is empty, all protocols are tried
 * @param clip long flag names and values, such as `duration: 5`
 * @throws MgwError('config') if a configured price cannot be read.
 */
export function pricesOfModel(
  { id, protocols }: Pick<Model, 'id' | 'protocols'>,
  settings: Settings,
  clip?: Readonly<Record<string, string>>,
): ModelPrice[] {
  if (id === speechModel) {
    const price = priceSetting('tts', id, settings);
    return price === undefined ? [] : [{ protocol: 'tts', price: price.value }];
  }
  return protocolNames.flatMap((name) => {
    if (protocols.length > 0 && !protocols.includes(name)) return [];
    const price = priceSetting(name, id, settings);
    if (price === undefined) return [];
    const protocol = protocolNamed(name);
    const flagNames = new Set(protocol.flags.map(longName));
    const usedFlags = Object.entries({ model: id, ...clip }).filter(([flag]) => flagNames.has(flag));
    const body = protocol.normalize(compose(protocol, { flags: Object.fromEntries(usedFlags) }));
    const { cost } = clip === undefined ? {} : priceOf({ protocol: name, model: id, body }, settings);
    return [{ protocol: name, price: price.value, ...(cost && { cost: cost.at_most }) }];
  });
}

/** Returns the name of the setting for a model's price. */
function priceKey(kind: JobKind, model: string): string {
  return kind === 'tts' ? 'prices.tts' : `prices.${kind}.${model}`;
}

/** Returns the flags and units allowed in a price of the given kind. */
export function priceSchema(kind: JobKind): { flags: readonly Flag[]; units: readonly Unit[] } {
  return kind === 'tts'
    ? { flags: speechFlags, units: speechUnits }
    : { flags: protocolNamed(kind).flags, units: videoUnits };
}

function sandboxPrice(kind: JobKind, model: string): Setting<string> | undefined {
  const value = priceText(kind, kind === 'tts' ? speechModel : model);
  return value === undefined ? undefined : { value, source: 'default' };
}

function readPrice(key: string, text: Setting<string>, kind: JobKind): Price {
  const { flags, units } = priceSchema(kind);
  try {
    return parsePrice(text.value, flags, units);
  } catch (error) {
    const options = { cause: error, next: priceCommand(key, kind) };
    throw new MgwError('config', `${key} in ${originText(text)}: ${messageOf(error)}.`, options);
  }
}

function priceCommand(key: string, kind: JobKind): string[] {
  return ['mgw', 'config', 'set', key, kind === 'tts' ? '10k_characters=AMOUNT' : 'second=AMOUNT'];
}

function quantityOf(kind: JobKind, body: JsonObject): Quantity {
  return kind === 'tts' ? speechQuantity(body) : protocolNamed(kind).quantityOf(body);
}

function multipliersIn({ groupMultiplier, userMultiplier }: Settings): Multipliers {
  return { group: parseAmount(groupMultiplier.value), user: parseAmount(userMultiplier.value) };
}
