import type { ExportedRating, GalleryItem } from '../data.ts';

/** The user's marks on an item. */
export interface Mark {
  rating?: number;
  note?: string;
  /** Whether to remake the result. */
  again?: boolean;
}

/** The default view. */
export const plainView = {
  text: '',
  state: '',
  model: '',
  protocol: '',
  tag: '',
  rating: '',
  sort: 'newest',
  layout: 'grid',
  /** The id of the job in the big view. */
  open: '',
  /** The ids of the jobs that play side by side, separated by commas. */
  compare: '',
};

/** The filters and the view, as stored in the page's URL. An empty filter matches everything. */
export type View = typeof plainView;

/** Parses a view from a URL fragment such as `#text=boat&rating=4`. */
export function viewOf(hash: string): View {
  const params = new URLSearchParams(hash.replace(/^#/, ''));
  const members = Object.entries(plainView).map(([name, value]) => [name, params.get(name) ?? value]);
  return Object.fromEntries(members) as View;
}

/** Returns a view's URL fragment: its differences from {@link plainView}. */
export function fragmentOf(view: View): string {
  const members = Object.entries(view).filter(([name, value]) => value !== plainView[name as keyof View]);
  return String(new URLSearchParams(members));
}

/** The rating filters, by their value in the URL. */
export const ratings: Record<string, [label: string, fits: (mark: Mark) => boolean]> = {
  none: ['not rated', ({ rating }) => rating === undefined],
  '5': ['5 stars', ({ rating }) => rating === 5],
  '4': ['4 or more', ({ rating = 0 }) => rating >= 4],
  '3': ['3 or less', ({ rating = 9 }) => rating <= 3],
  '2': ['2 or less', ({ rating = 9 }) => rating <= 2],
  note: ['with a note', ({ note = '' }) => note !== ''],
  again: ['to be remade', ({ again = false }) => again],
};

type Order = (one: GalleryItem, other: GalleryItem, getMark: (id: string) => Mark) => number;

/** The sort orders, by their value in the URL. Items are sorted newest first by default. */
export const orders: Record<string, [label: string, order: Order | undefined]> = {
  newest: ['newest first', undefined],
  oldest: ['oldest first', (one, other) => compare(one.id, other.id)],
  name: ['by name', (one, other) => compare(nameOf(one), nameOf(other))],
  prompt: ['by prompt', (one, other) => compare(promptOf(one), promptOf(other))],
  model: ['by model', (one, other) => compare(one.model ?? '', other.model ?? '')],
  best: ['best first', (one, other, of) => (of(other.id).rating ?? 0) - (of(one.id).rating ?? 0)],
  worst: ['worst first', (one, other, of) => (of(one.id).rating ?? 9) - (of(other.id).rating ?? 9)],
  price: ['most expensive first', (one, other) => Number(other.price ?? 0) - Number(one.price ?? 0)],
};

const words = new Intl.Collator('en', { numeric: true });

function compare(one: string, other: string): number {
  return words.compare(one, other);
}

/** Returns the items that match a view, sorted in its order. */
export function filterItems(
  items: readonly GalleryItem[],
  view: View,
  getMark: (id: string) => Mark,
): GalleryItem[] {
  const searchWords = view.text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  const fits = ratings[view.rating]?.[1];
  const found = items.filter(
    (item) =>
      (view.state === '' || item.state === view.state) &&
      (view.model === '' || item.model === view.model) &&
      (view.protocol === '' || item.protocol === view.protocol) &&
      (view.tag === '' || item.tags?.includes(view.tag) === true) &&
      (fits === undefined || fits(getMark(item.id))) &&
      (searchWords.length === 0 || holds(item, getMark(item.id), searchWords)),
  );
  const order = orders[view.sort]?.[1];
  return order === undefined ? found : found.sort((one, other) => order(one, other, getMark));
}

function holds(item: GalleryItem, { note = '' }: Mark, wanted: readonly string[]): boolean {
  const { id, key = '', model = '', reason = '', tags = [], seed = '', files } = item;
  const names = files.map(({ name }) => name);
  const text = [id, key, model, reason, seed, note, promptOf(item), ...tags, ...names, ...mismatchesOf(item)]
    .join('\n')
    .toLowerCase();
  return wanted.every((word) => text.includes(word));
}

/** Returns an item's prompt, or the text to speak. */
export function promptOf({ prompt, redo }: GalleryItem): string {
  const text = prompt ?? redo?.['prompt'] ?? redo?.['text'];
  return typeof text === 'string' ? text : '';
}

/** Returns an item's name: its row in a batch, its key, or its id. */
export function nameOf({ id, key }: GalleryItem): string {
  if (key === undefined) return id;
  const [, row, take] = key.split('/');
  return row === undefined ? key : take === undefined ? row : `${row}, take ${take}`;
}

/**
 * Returns the items to compare: the item itself, then the items with the same prompt, or with the same row id in any
 * batch.
 */
export function relatives(item: GalleryItem, items: readonly GalleryItem[]): GalleryItem[] {
  const [prompt, row] = [promptOf(item), item.key?.split('/')[1]];
  const others = items.filter(
    (other) =>
      other !== item &&
      other.files.length > 0 &&
      ((prompt !== '' && promptOf(other) === prompt) ||
        (row !== undefined && other.key?.split('/')[1] === row)),
  );
  return [item, ...others];
}

/** Returns the differences between an item's files and its request. */
export function mismatchesOf({ files }: GalleryItem): string[] {
  return [...new Set(files.flatMap(({ mismatches = [] }) => mismatches))];
}

/** Formats a duration for display. A plain number is in seconds. */
export function lengthText(duration: string): string {
  return /^\d+(\.\d+)?$/.test(duration) ? `${duration} s` : duration;
}

/** Formats an item's price, and whether it was charged. */
export function priceText({ price, currency = '', charge }: GalleryItem): string | undefined {
  if (charge === undefined) return undefined;
  const amount = price === undefined ? 'price unknown' : `${price} ${currency}`.trim();
  if (charge === 'spent') return amount;
  return charge === 'failed' ? `${amount}, unless refunded` : `${amount}, if it was charged`;
}

/** Returns the facts about an item to display on one line. */
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

/** Formats a time in the reader's language. */
export function timeText(iso: string): string {
  return new Date(iso).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
}

/**
 * Returns rows for `redo.jsonl` that remake the marked items and those rated `atMost` or less (0 for none), and the
 * items that cannot become rows.
 * @param hasSeeds if false, omits the seeds, because the same seed may produce the same result
 */
export function redoRows(
  items: readonly GalleryItem[],
  getMark: (id: string) => Mark,
  atMost: number,
  hasSeeds: boolean,
): { lines: string[]; without: GalleryItem[] } {
  const selected = items.filter(({ id }) => {
    const { again = false, rating = 9 } = getMark(id);
    return again || rating <= atMost;
  });
  const lines = selected.flatMap(({ redo }) =>
    redo === undefined ? [] : [JSON.stringify(hasSeeds ? redo : withoutSeed(redo))],
  );
  return { lines, without: selected.filter(({ redo }) => redo === undefined) };
}

function withoutSeed(row: Record<string, unknown>): Record<string, unknown> {
  const rest = without(row, 'seed');
  if (typeof rest['body'] !== 'object' || rest['body'] === null) return rest;
  const body = without(rest['body'] as Record<string, unknown>, 'seed');
  return Object.keys(body).length === 0 ? without(rest, 'body') : { ...rest, body };
}

function without(row: Record<string, unknown>, name: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).filter(([each]) => each !== name));
}

/** Returns the content of `ratings.json`. */
export function ratingsText(ratings: readonly ExportedRating[]): string {
  return `${JSON.stringify({ ratings }, undefined, 2)}\n`;
}
