/** The billed areas: the three video protocols, speech and Responses. */
export type Area = 'a' | 'b' | 'c' | 'tts' | 'responses';

/** The areas whose requests become tasks. */
export type VideoArea = 'a' | 'b' | 'c';

/** A model in the sandbox, with its differences from the other models in its area. */
export interface Model {
  id: string;
  area: Area;
  /** Protocol B only: the available versions (specification 2.7). */
  versions?: readonly string[];
  /** Protocol C only: self-hosted models accept values that the official model refuses (specification 7, 8). */
  isSelfHosted?: true;
  /**
   * Protocol A only: whether `generateAudio` and `image` are supported, and whether results are inside the operation.
   */
  audio?: true;
  image?: true;
  isInline?: true;
  /** Protocol B only: requires `ExtInfo` to be serialized twice (specification 2.3). */
  isExtended?: true;
}

/** Every model in the sandbox. The specification lists only Protocol C's models. */
export const allModels: readonly Model[] = [
  { id: 'video-a', area: 'a', audio: true, image: true },
  { id: 'video-a-fast', area: 'a', image: true },
  { id: 'video-a-inline', area: 'a', audio: true, isInline: true },
  { id: 'Video-B', area: 'b', versions: ['1.0', '2.0'] },
  { id: 'Video-B-Lite', area: 'b', versions: ['1.0'] },
  { id: 'Video-B-Ext', area: 'b', versions: ['3.0'], isExtended: true },
  { id: 'vendor-h3', area: 'c' },
  { id: 'vendor-h3-base', area: 'c', isSelfHosted: true },
  { id: 'vendor-h3-base-fast', area: 'c', isSelfHosted: true },
  { id: 'vendor-h3-mini', area: 'c', isSelfHosted: true },
  { id: 'speech-tts-2.0', area: 'tts' },
  { id: 'text-1', area: 'responses' },
];

/**
 * Returns an area's model with the exact, case-sensitive name; undefined if there is none or the key is not allowed to
 * use it.
 */
export function findModel(
  area: Area,
  id: unknown,
  mayUse: (model: string) => boolean = () => true,
): Model | undefined {
  return allModels.find((model) => model.area === area && model.id === id && mayUse(model.id));
}

/** A model's price per unit, in credits, and its surcharges. All amounts are exact decimals. */
export interface Price {
  area: Area;
  model: string;
  /** One second of each video, 10,000 characters that are not white space, or 1,000 tokens of input and output. */
  unit: 'second' | '10k_characters' | '1k_tokens';
  price: string;
  /**
   * If set, the price applies only to requests with this resolution, and takes precedence over a price
   * without a resolution.
   */
  resolution?: string;
  /** The number of seconds to bill if a request has no duration. */
  defaultSeconds?: number;
  /** The price of each reference image beyond `freeReferenceImages` (default 0). */
  referenceImage?: string;
  freeReferenceImages?: number;
  /** The minimum price per video. */
  minimum?: string;
}

/** Every price in the sandbox. */
export const allPrices: readonly Price[] = [
  ...pricesPerSecond('a', 8, { 'video-a': '12', 'video-a-fast': '6', 'video-a-inline': '12' }),
  ...pricesPerSecond('b', 5, { 'Video-B': '10' }, { referenceImage: '2.5', freeReferenceImages: 1 }),
  ...pricesPerSecond('b', 5, { 'Video-B-Lite': '5' }, { minimum: '12.5' }),
  ...pricesPerSecond('b', 5, { 'Video-B-Ext': '15' }),
  ...pricesPerSecond('c', 5, { 'vendor-h3': '10' }, { referenceImage: '3', freeReferenceImages: 5 }),
  ...pricesPerSecond('c', 5, { 'vendor-h3-base': '4' }, { referenceImage: '0.75' }),
  ...pricesPerSecond('c', 5, { 'vendor-h3-base-fast': '3' }, { minimum: '16' }),
  ...pricesPerSecond('c', 5, { 'vendor-h3-mini': '2' }),
  ...pricesPerSecond(
    'c',
    5,
    { 'vendor-h3': '20' },
    { resolution: '2K', referenceImage: '6', freeReferenceImages: 5 },
  ),
  { area: 'tts', model: 'speech-tts-2.0', unit: '10k_characters', price: '150' },
  { area: 'responses', model: 'text-1', unit: '1k_tokens', price: '1' },
];

/** Returns a model's prices: the general price, followed by the prices for specific resolutions. */
export function pricesOf(area: string, model: string): Price[] {
  return allPrices.filter((price) => price.area === area && price.model === model);
}

/** Returns a request's price. @throws RangeError if the model has no price */
export function priceFor(area: Area, model: string, resolution?: string): Price {
  const prices = pricesOf(area, model);
  const price =
    prices.find((candidate) => candidate.resolution !== undefined && candidate.resolution === resolution) ??
    prices.find((candidate) => candidate.resolution === undefined);
  if (price === undefined) throw new RangeError(`No price for ${area} ${model}`);
  return price;
}

/**
 * Returns a model's prices in the syntax of mgw's configuration: `second=10 default_seconds=5; resolution=2K: …`;
 * undefined if the model has no price.
 */
export function priceText(area: string, model: string): string | undefined {
  const texts = pricesOf(area, model).map(({ resolution, ...price }) => {
    const { unit, defaultSeconds, referenceImage, freeReferenceImages, minimum } = price;
    const words = {
      [unit === '10k_characters' ? '10k_visible_characters' : unit]: price.price,
      default_seconds: defaultSeconds,
      reference_image: referenceImage,
      free_reference_images: freeReferenceImages,
      minimum,
    };
    const text = Object.entries(words).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name}=${value}`],
    );
    return `${resolution === undefined ? '' : `resolution=${resolution}: `}${text.join(' ')}`;
  });
  return texts.length === 0 ? undefined : texts.join('; ');
}

function pricesPerSecond(
  area: Area,
  defaultSeconds: number,
  prices: Record<string, string>,
  parts: Partial<Price> = {},
): Price[] {
  return Object.entries(prices).map(([model, price]) => ({
    area,
    model,
    unit: 'second',
    price,
    defaultSeconds,
    ...parts,
  }));
}

/** A request's billed quantities: the units of its price and, for video, the number of videos and reference images. */
interface BilledQuantities {
  units: number;
  videos?: number;
  referenceImages?: number;
}

/** Returns a request's cost in credits, rounded down to a millionth. */
export function cost(price: Price, { units, videos = 1, referenceImages = 0 }: BilledQuantities): number {
  const { referenceImage = '0', freeReferenceImages = 0, minimum = '0' } = price;
  const images = Math.max(0, referenceImages - freeReferenceImages);
  const sum = microsOf(price.price, units) + microsOf(referenceImage, images);
  const minMicros = microsOf(minimum, videos);
  return Number(sum < minMicros ? minMicros : sum) / microsPerCredit;
}

/** Returns the exact sum of amounts. */
export function sumOf(amounts: readonly number[]): number {
  return amounts.reduce((sum, amount) => sum + Math.round(amount * microsPerCredit), 0) / microsPerCredit;
}

/** Amounts in credits are added as whole millionths, so that a sum of exact decimals is exact. */
const microsPerCredit = 1_000_000;

/** Returns an amount times a count, in whole millionths, rounded down. */
function microsOf(amount: string, count: number): bigint {
  const [one, other] = [parseDecimal(amount), parseDecimal(String(count))];
  return (one.digits * other.digits * BigInt(microsPerCredit)) / 10n ** BigInt(one.places + other.places);
}

/** Parses a decimal number. A number too small for plain digits, such as 1e-7, is treated as zero. */
function parseDecimal(text: string): { digits: bigint; places: number } {
  const [, whole = '0', fraction = ''] = /^(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
  return { digits: BigInt(whole + fraction), places: fraction.length };
}
