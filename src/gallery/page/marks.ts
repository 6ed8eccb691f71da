import type { ExportedRating, GalleryData, GalleryItem } from '../data.ts';
import type { Mark } from './select.ts';

interface StoredMark extends Mark {
  /** The time of the last change, ISO 8601 in UTC. */
  at: string;
}

const prefix = 'mgw:';

/**
 * The user's ratings and notes. They are stored in the browser, separately for each job, so that two pages or windows
 * do not overwrite each other's marks. If mgw serves the page, they are stored in the ledger too. The latest rating
 * takes precedence.
 */
export class Marks {
  readonly #items: Map<string, GalleryItem>;
  readonly #save: GalleryData['save'];
  readonly #storedMarks = new Map<string, StoredMark>();
  /**
   * Resolves when all ratings have been sent. Ratings are sent one after the other,
   * so that the latest one takes effect.
   */
  #sending: Promise<void> = Promise.resolve();
  /** Called with an item's id when its marks have changed. */
  onChange: (id: string) => void = () => undefined;
  /** Called with a message if a rating could not be stored. */
  onTrouble: (text: string) => void = () => undefined;

  constructor({ items, save }: GalleryData) {
    this.#items = new Map(items.map((item) => [item.id, item]));
    this.#save = save;
    for (const { id } of items) this.#read(id);
    addEventListener('storage', ({ key }) => {
      const id = key?.startsWith(prefix) ? key.slice(prefix.length) : '';
      if (!this.#items.has(id)) return;
      this.#read(id);
      this.onChange(id);
    });
  }

  /** Returns an item's marks. This is a property, so that it can be passed as a function. */
  readonly of = (id: string): Mark => {
    const item = this.#items.get(id);
    const storedMark = this.#storedMarks.get(id);
    if (storedMark === undefined) return { rating: item?.rating, note: item?.note };
    if (storedMark.at >= (item?.rated ?? '')) return storedMark;
    return { rating: item?.rating, note: item?.note, again: storedMark.again };
  };

  /** Changes an item's marks. */
  set(id: string, change: Mark): void {
    const before = this.of(id);
    const { rating, note, again } = { ...before, ...change };
    const storedMark: StoredMark = { rating, note, again, at: new Date().toISOString() };
    this.#storedMarks.set(id, storedMark);
    this.#write(id, storedMark);
    this.onChange(id);
    if (rating !== before.rating || note !== before.note)
      this.#sending = this.#sending.then(() => this.#send(id, { rating, note }));
  }

  /** Returns this page's ratings and notes, for `ratings.json`. */
  exported(): ExportedRating[] {
    return [...this.#items.values()].flatMap(({ id, rated }) => {
      const { rating, note } = this.of(id);
      const at = this.#storedMarks.get(id)?.at ?? rated;
      return at === undefined || (rating === undefined && !note && rated === undefined)
        ? []
        : [{ job: id, rating, note: note || undefined, at }];
    });
  }

  #read(id: string): void {
    try {
      const storedMark: unknown = JSON.parse(localStorage.getItem(prefix + id) ?? 'null');
      if (isStoredMark(storedMark)) this.#storedMarks.set(id, storedMark);
    } catch {
      // Ignore the error: without storage, the next write fails too, and that failure is reported.
    }
  }

  #write(id: string, storedMark: StoredMark): void {
    try {
      localStorage.setItem(prefix + id, JSON.stringify(storedMark));
    } catch {
      this.onTrouble('This browser cannot store ratings for this page. Export them before you close it.');
    }
  }

  async #send(job: string, { rating, note }: Mark): Promise<void> {
    if (this.#save === undefined) return;
    try {
      const { path, token } = this.#save;
      const headers = { 'content-type': 'application/json', 'x-mgw-token': token };
      const body = JSON.stringify({ job, rating, note: note || undefined });
      const response = await fetch(path, { method: 'POST', headers, body });
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
    } catch {
      this.onTrouble(
        'Could not reach mgw, so the rating is stored in this browser only. Export the ratings.',
      );
    }
  }
}

// Checks a stored mark, because another version of the page may have written it.
function isStoredMark(value: unknown): value is StoredMark {
  if (typeof value !== 'object' || value === null || !('at' in value)) return false;
  const { at, rating, note } = value as Record<keyof StoredMark, unknown>;
  const isRating = rating === undefined || typeof rating === 'number';
  return typeof at === 'string' && isRating && (note === undefined || typeof note === 'string');
}
