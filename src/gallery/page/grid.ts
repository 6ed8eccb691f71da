import type { GalleryItem } from '../data.ts';
import { make, mark } from './dom.ts';
import type { Mark } from './select.ts';
import { tileOf, type Tile, type TileDeps } from './tile.ts';

/** The number of rendered rows above and below the visible ones. */
const spareRows = 2;
const narrowest = 232;
const gap = 14;
/** The height of the text under a tile's picture, in px. */
const aboutHeight = 132;
const rowHeight = 92;

/** Shows items as tiles or as rows. Only the items on the screen and a few around them are in the document. */
export class Grid {
  readonly element = make('div', { class: 'items', role: 'list', 'aria-label': 'Jobs' });
  readonly #deps: TileDeps;
  readonly #getMark: (id: string) => Mark;
  readonly #isCompared: (id: string) => boolean;
  readonly #tiles = new Map<string, Tile>();
  #items: GalleryItem[] = [];
  #isList = false;
  #columns = 1;
  #height = rowHeight;
  #width = 0;
  /** The index of the item that has, or last had, the focus. */
  #current = 0;
  #isDrawing = false;

  constructor(deps: TileDeps, getMark: (id: string) => Mark, isCompared: (id: string) => boolean) {
    this.#deps = deps;
    this.#getMark = getMark;
    this.#isCompared = isCompared;
    addEventListener('scroll', () => this.#soon(), { passive: true });
    new ResizeObserver(() => this.#measure()).observe(this.element);
    this.element.addEventListener('focusin', ({ target }) => {
      const id = (target as HTMLElement).closest<HTMLElement>('.tile')?.dataset['id'];
      const place = this.#items.findIndex((item) => item.id === id);
      if (place >= 0) this.#point(place);
    });
  }

  /** The selected item, to which keyboard shortcuts apply. */
  get current(): GalleryItem | undefined {
    return this.#items[this.#current];
  }

  show(items: GalleryItem[], isList: boolean): void {
    const id = this.current?.id;
    this.#items = items;
    this.#isList = isList;
    this.#current = Math.max(
      0,
      items.findIndex((item) => item.id === id),
    );
    this.element.classList.toggle('list', isList);
    this.#measure();
  }

  /** Updates an item's marks. */
  update(id: string): void {
    this.#tiles.get(id)?.show(this.#getMark(id), this.#isCompared(id));
  }

  /** Starts or stops playing the current item in its tile. */
  toggle(): void {
    this.#tiles.get(this.current?.id ?? '')?.toggle();
  }

  /** Moves the focus by a number of columns and rows. */
  move(columns: number, rows: number): void {
    const to = this.#current + columns + rows * this.#columns;
    this.focus(this.#items[Math.min(this.#items.length - 1, Math.max(0, to))]?.id ?? '');
  }

  /** Scrolls an item into view and focuses it. */
  focus(id: string): void {
    const place = this.#items.findIndex((item) => item.id === id);
    if (place < 0) return;
    this.#point(place);
    const top = this.#topOf(place) + this.element.offsetTop;
    const bar = document.querySelector('header')?.offsetHeight ?? 0;
    if (top < scrollY + bar) scrollTo({ top: top - bar - gap });
    else if (top + this.#height > scrollY + innerHeight)
      scrollTo({ top: top + this.#height - innerHeight + gap });
    this.#draw();
    this.#tiles.get(id)?.focus.focus({ preventScroll: true });
  }

  #point(place: number): void {
    const before = this.#tiles.get(this.current?.id ?? '');
    if (before !== undefined) before.focus.tabIndex = -1;
    this.#current = place;
    const now = this.#tiles.get(this.current?.id ?? '');
    if (now !== undefined) now.focus.tabIndex = 0;
  }

  #topOf(place: number): number {
    return Math.floor(place / this.#columns) * (this.#height + gap);
  }

  #measure(): void {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.#columns = this.#isList ? 1 : Math.max(1, Math.floor((width + gap) / (narrowest + gap)));
    this.#width = (width - gap * (this.#columns - 1)) / this.#columns;
    this.#height = this.#isList ? rowHeight : Math.round((this.#width * 9) / 16) + aboutHeight;
    const rows = Math.ceil(this.#items.length / this.#columns);
    this.element.style.height = `${Math.max(0, rows * (this.#height + gap) - gap)}px`;
    this.#draw();
  }

  #soon(): void {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#draw();
    });
  }

  #draw(): void {
    const step = this.#height + gap;
    const top = scrollY - this.element.offsetTop;
    const first = Math.max(0, Math.floor(top / step) - spareRows) * this.#columns;
    const last = (Math.ceil((top + innerHeight) / step) + spareRows) * this.#columns;
    const placesById = new Map(this.#items.slice(first, last).map((item, index) => [item.id, first + index]));
    // Keep the focused tile in the document, because keys on a removed tile would have no effect.
    const current = this.current;
    if (current !== undefined && this.element.contains(document.activeElement))
      placesById.set(current.id, this.#current);
    for (const [id, tile] of this.#tiles) if (!placesById.has(id)) this.#drop(id, tile);
    // Insert tiles from last to first, because each tile is inserted before its successor.
    let next: Element | null = null;
    for (const [id, place] of [...placesById].sort(([, one], [, other]) => other - one))
      next = this.#put(id, place, next) ?? next;
  }

  #drop(id: string, tile: Tile): void {
    tile.remove();
    tile.element.remove();
    this.#tiles.delete(id);
  }

  #put(id: string, place: number, next: Element | null): Element | undefined {
    const item = this.#items[place];
    if (item === undefined) return undefined;
    let tile = this.#tiles.get(id);
    if (tile === undefined) {
      tile = tileOf(item, this.#deps);
      tile.focus.tabIndex = place === this.#current ? 0 : -1;
      this.#tiles.set(id, tile);
      tile.show(this.#getMark(id), this.#isCompared(id));
      this.element.insertBefore(tile.element, next);
    }
    const { style } = tile.element;
    const left = (place % this.#columns) * (this.#width + gap);
    style.width = `${this.#width}px`;
    style.height = `${this.#height}px`;
    style.transform = `translate(${left}px, ${this.#topOf(place)}px)`;
    mark(tile.element, 'aria-posinset', String(place + 1));
    mark(tile.element, 'aria-setsize', String(this.#items.length));
    return tile.element;
  }
}
