/** What is billed: the three video protocols, speech and Responses. */
export type Area = 'a' | 'b' | 'c' | 'tts' | 'responses';

/** The areas whose requests become tasks. */
export type VideoArea = 'a' | 'b' | 'c';

/** One model the sandbox offers, with what sets it apart from the others of its area. */
export interface Model {
  id: string;
  area: Area;
  /** B: the versions that may be asked for (specification 2.7). */
  versions?: readonly string[];
  /** C: self-hosted models pass values on that the official one refuses (specification 7, 8). */
  selfHosted?: true;
  /** A: whether `generateAudio` and `image` are supported, and whether results come inside the operation. */
  audio?: true;
  image?: true;
  inline?: true;
  /** B: wants `ExtInfo` serialised twice (specification 2.3). */
  extended?: true;
}

/** Every model of the sandbox. The names of C are the specification's; it leaves the others open. */
export const MODELS: readonly Model[] = [
  { id: 'video-a', area: 'a', audio: true, image: true },
  { id: 'video-a-fast', area: 'a', image: true },
  { id: 'video-a-inline', area: 'a', audio: true, inline: true },
  { id: 'Video-B', area: 'b', versions: ['1.0', '2.0'] },
  { id: 'Video-B-Lite', area: 'b', versions: ['1.0'] },
  { id: 'Video-B-Ext', area: 'b', versions: ['3.0'], extended: true },
  { id: 'vendor-h3', area: 'c' },
  { id: 'vendor-h3-base', area: 'c', selfHosted: true },
  { id: 'vendor-h3-base-fast', area: 'c', selfHosted: true },
  { id: 'vendor-h3-mini', area: 'c', selfHosted: true },
  { id: 'speech-tts-2.0', area: 'tts' },
  { id: 'text-1', area: 'responses' },
];

/** Finds a model of an area by its exact, case-sensitive name. Undefined if the key may not use it. */
export function findModel(
  area: Area,
  id: unknown,
  mayUse: (model: string) => boolean = () => true,
): Model | undefined {
  return MODELS.find((model) => model.area === area && model.id === id && mayUse(model.id));
}

/** What one unit of a model costs, in credits. */
export interface Price {
  area: Area;
  model: string;
  /** A second of each video, 10,000 characters that are not white space, or 1,000 tokens of input and output. */
  unit: 'second' | '10k_characters' | '1k_tokens';
  /** An exact decimal. */
  price: string;
  /** The price is for requests with this resolution only; it takes precedence over one without. */
  resolution?: string;
  /** The seconds that are billed if a request asks for no duration. */
  defaultSeconds?: number;
}

/** Every price of the sandbox. */
export const PRICES: readonly Price[] = [
  ...perSecond('a', 8, { 'video-a': '12', 'video-a-fast': '6', 'video-a-inline': '12' }),
  ...perSecond('b', 5, { 'Video-B': '10', 'Video-B-Lite': '5', 'Video-B-Ext': '15' }),
  ...perSecond('c', 5, {
    'vendor-h3': '10',
    'vendor-h3-base': '4',
    'vendor-h3-base-fast': '3',
    'vendor-h3-mini': '2',
  }),
  { area: 'c', model: 'vendor-h3', unit: 'second', price: '20', resolution: '2K', defaultSeconds: 5 },
  { area: 'tts', model: 'speech-tts-2.0', unit: '10k_characters', price: '150' },
  { area: 'responses', model: 'text-1', unit: '1k_tokens', price: '1' },
];

/** The prices of one model: the general one, then those for single resolutions. */
export function pricesOf(area: string, model: string): Price[] {
  return PRICES.filter((price) => price.area === area && price.model === model);
}

/** The price that a request is charged by. Throws RangeError for a model without one. */
export function priceFor(area: Area, model: string, resolution?: string): Price {
  const prices = pricesOf(area, model);
  const price =
    prices.find((candidate) => candidate.resolution !== undefined && candidate.resolution === resolution) ??
    prices.find((candidate) => candidate.resolution === undefined);
  if (price === undefined) throw new RangeError(`No price for ${area} ${model}`);
  return price;
}

/**
 * The prices of a model in one line, as the configuration of mgw spells them: `second=10 default_seconds=5; resolution=2K: …`.
 * Undefined for a model without a price.
 */
export function priceText(area: string, model: string): string | undefined {
  const texts = pricesOf(area, model).map(({ unit, price, resolution, defaultSeconds }) => {
    const amount = `${unit === '10k_characters' ? '10k_visible_characters' : unit}=${price}`;
    const length = defaultSeconds === undefined ? '' : ` default_seconds=${defaultSeconds}`;
    return `${resolution === undefined ? '' : `resolution=${resolution}: `}${amount}${length}`;
  });
  return texts.length === 0 ? undefined : texts.join('; ');
}

function perSecond(area: Area, defaultSeconds: number, prices: Record<string, string>): Price[] {
  return Object.entries(prices).map(([model, price]) => ({
    area,
    model,
    unit: 'second',
    price,
    defaultSeconds,
  }));
}

/** Amounts are credits. They are summed as whole millionths, so that a sum is an exact decimal too. */
const MICROS_PER_CREDIT = 1_000_000;

/** `quantity` units at `price` credits each, to the millionth. */
export function cost(price: string, quantity: number): number {
  return Math.round(toMicros(Number(price)) * quantity) / MICROS_PER_CREDIT;
}

/** The exact sum of amounts. */
export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, amount) => sum + toMicros(amount), 0) / MICROS_PER_CREDIT;
}

function toMicros(credits: number): number {
  return Math.round(credits * MICROS_PER_CREDIT);
}
