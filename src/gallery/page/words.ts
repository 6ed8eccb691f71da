import type { GalleryItem } from '../data.ts';

/** A length in seconds as a person reads it. */
export function lengthText(duration: string): string {
  return /^\d+(\.\d+)?$/.test(duration) ? `${duration} s` : duration;
}

/** The price as it counts: it may come back, or never have been charged. */
export function priceText({ price, charge }: GalleryItem): string | undefined {
  if (charge === undefined) return undefined;
  const amount = price === undefined ? 'price unknown' : `cost ${price}`;
  if (charge === 'spent') return amount;
  return charge === 'failed' ? `${amount}, or given back` : `${amount}, if it was charged`;
}

/** The facts of an item, for one line. */
export function factsOf(item: GalleryItem): string[] {
  const { model, seed, duration, resolution } = item;
  const facts = [
    model,
    duration && lengthText(duration),
    resolution,
    seed && `seed ${seed}`,
    priceText(item),
  ];
  return facts.filter((fact) => fact !== undefined && fact !== '') as string[];
}

/** A time as the reader writes it. */
export function timeText(iso: string): string {
  return new Date(iso).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}
