import type { ExportedRating, GalleryItem } from '../data.ts';
import type { Mark } from './select.ts';

/** The rows of `redo.jsonl`, and how many items there can be none of. */
export interface RedoRows {
  lines: string[];
  without: GalleryItem[];
}

/**
 * The rows that make again what is marked, and what is rated `atMost` or less (0: none).
 * @param hasSeeds false leaves the seeds out: with its seed, a model may make the very same
 */
export function redoRows(
  items: readonly GalleryItem[],
  markOf: (id: string) => Mark,
  atMost: number,
  hasSeeds: boolean,
): RedoRows {
  const wanted = items.filter(({ id }) => {
    const { again = false, rating = 9 } = markOf(id);
    return again || rating <= atMost;
  });
  const lines = wanted.flatMap(({ redo }) =>
    redo === undefined ? [] : [JSON.stringify(hasSeeds ? redo : withoutSeed(redo))],
  );
  return { lines, without: wanted.filter(({ redo }) => redo === undefined) };
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

/** The content of `ratings.json`. */
export function ratingsText(ratings: readonly ExportedRating[]): string {
  return `${JSON.stringify({ ratings }, undefined, 2)}\n`;
}
