import type { GalleryData, GalleryItem } from '../data.ts';
import { BigView, commandBox } from './big.ts';
import { CompareView, maxCompared } from './compare.ts';
import { make, onKeys, ratingKeys } from './dom.ts';
import { Grid } from './grid.ts';
import { Marks } from './marks.ts';
import { Posters } from './posters.ts';
import {
  filterItems,
  fragmentOf,
  relatives,
  type View,
  viewOf,
  nameOf,
  ratingsText,
  redoRows,
} from './select.ts';
import { SoundPlayer } from './sound.ts';
import { Toolbar } from './toolbar.ts';

/** The dialog that exports the ratings, and a manifest of the jobs to remake. */
class ExportView {
  readonly element = make('dialog', { class: 'export', 'aria-label': 'Export' });
  readonly #data: GalleryData;
  readonly #marks: Marks;

  constructor(data: GalleryData, marks: Marks) {
    this.#data = data;
    this.#marks = marks;
  }

  show(): void {
    const close = make('button', { type: 'button', onclick: () => this.element.close() }, 'Close');
    this.element.replaceChildren(make('h2', {}, 'Export'), this.#ratings(), this.#redo(), close);
    this.element.showModal();
  }

  #ratings(): HTMLElement {
    const ratings = this.#marks.exported();
    const countText = `${ratings.length} ${ratings.length === 1 ? 'job has' : 'jobs have'} a rating or a note.`;
    const saved = this.#data.save === undefined ? '' : ' They are already in the ledger.';
    const save = make('button', { type: 'button' }, 'Save ratings.json');
    save.disabled = ratings.length === 0;
    save.addEventListener('click', () => download('ratings.json', 'application/json', ratingsText(ratings)));
    return make('section', {}, make('p', {}, countText + saved), save, commandBox(this.#data.commands.rate));
  }

  #redo(): HTMLElement {
    const options = [
      ['0', 'no others'],
      ['1', 'those rated 1'],
      ['2', 'those rated 2 or less'],
      ['3', 'those rated 3 or less'],
    ].map(([value, text]) => make('option', { value }, text));
    const maxRating = make('select', { 'aria-label': 'Rated' }, ...options);
    const seeds = make('input', { type: 'checkbox' });
    const status = make('p', { role: 'status' });
    const save = make('button', { type: 'button' }, 'Save redo.jsonl');
    let lines: string[] = [];
    const count = (): void => {
      const rows = redoRows(this.#data.items, this.#marks.of, Number(maxRating.value), seeds.checked);
      lines = rows.lines;
      const omitted = rows.without.map((item) => `${nameOf(item)} (${item.noRedo ?? ''})`).join(', ');
      status.textContent = `${lines.length} to remake.${omitted && ` Cannot be remade: ${omitted}.`}`;
      save.disabled = lines.length === 0;
    };
    for (const input of [maxRating, seeds]) input.addEventListener('change', count);
    save.addEventListener('click', () =>
      download('redo.jsonl', 'application/jsonl', lines.map((line) => `${line}\n`).join('')),
    );
    count();
    return make(
      'section',
      {},
      make('p', {}, 'Remake the jobs marked with x, and ', maxRating, '.'),
      make('label', {}, seeds, ' with the same seeds'),
      status,
      save,
      commandBox(this.#data.commands.redo),
    );
  }
}

const data = JSON.parse(document.getElementById('data')?.textContent ?? '') as GalleryData;
const items = new Map(data.items.map((item) => [item.id, item]));
const marks = new Marks(data);
const picked = new Set<string>();
let view = viewOf(location.hash);
let shownItems: GalleryItem[] = [];
/** Whether the browser's back button closes the open view. */
let canGoBack = false;

const toolbar = new Toolbar(data.items, {
  change: (change) => go(change),
  compare: () => go({ compare: [...picked].join(',') }),
  exportAll: () => exportView.show(),
});
const grid = new Grid(
  {
    posters: new Posters(),
    sounds: new SoundPlayer(),
    open: (id) => go({ open: id }),
    rate: (id, rating) => marks.set(id, { rating }),
    toggleAgain,
    toggleCompare,
  },
  marks.of,
  (id) => picked.has(id),
);
const big = new BigView({
  marks,
  step,
  close: () => leave({ open: '' }),
  compare: (item) => go({ compare: idsOf(relatives(item, data.items)) }),
  search: () => {
    canGoBack = false;
    go({ open: '' });
    toolbar.focusSearch();
  },
  relativesOf: (item) => relatives(item, data.items).length,
});
const compareView = new CompareView(marks, () =>
  view.open === '' ? leave({ compare: '' }) : go({ compare: '' }),
);
const exportView = new ExportView(data, marks);
const trouble = make('p', { class: 'trouble', role: 'alert' });
const empty = make('p', { class: 'empty' }, 'No result matches these filters.');

function idsOf(list: readonly GalleryItem[]): string {
  return list
    .slice(0, maxCompared)
    .map(({ id }) => id)
    .join(',');
}

// Adds an entry to the browser's history when a view opens, but not when a filter changes.
function go(change: Partial<View>): void {
  const next = { ...view, ...change };
  const hash = `#${fragmentOf(next)}`;
  const isOpening = (change.open ?? '') !== '' || (change.compare ?? '') !== '';
  if (isOpening && view.open === '' && view.compare === '') {
    location.hash = hash;
    canGoBack = true;
  } else location.replace(hash);
  show(next);
}

// Closes a view that was opened in this page by going back in the history. Otherwise, the browser's
// back button would reopen the view.
function leave(change: Partial<View>): void {
  const isOwn = canGoBack;
  canGoBack = false;
  if (isOwn) history.back();
  else go(change);
}

function show(next: View): void {
  const before = view.open;
  view = next;
  shownItems = filterItems(data.items, view, marks.of);
  grid.show(shownItems, view.layout === 'list');
  empty.hidden = shownItems.length > 0;
  const compared = view.compare.split(',').flatMap((id) => items.get(id) ?? []);
  const place = shownItems.findIndex(({ id }) => id === view.open);
  big.show(
    compared.length > 0 ? undefined : items.get(view.open),
    place < 0 ? '' : `${place + 1} / ${shownItems.length}`,
  );
  compareView.show(compared);
  toolbar.show(view, shownItems.length, data.items.length, picked.size);
  if (before !== '' && view.open === '' && view.compare === '') grid.focus(before);
}

function step(by: number): void {
  const place = shownItems.findIndex(({ id }) => id === view.open) + by;
  const next = shownItems[place];
  if (next !== undefined) go({ open: next.id });
}

function toggleAgain(id: string): void {
  marks.set(id, { again: !marks.of(id).again });
}

function toggleCompare(id: string): void {
  if (!picked.delete(id) && picked.size < maxCompared) picked.add(id);
  grid.update(id);
  toolbar.show(view, shownItems.length, data.items.length, picked.size);
}

// Returns an action on the current item that first scrolls the item into view.
const withCurrent = (act: (item: GalleryItem) => void) => () => {
  if (grid.current === undefined) return;
  grid.focus(grid.current.id);
  act(grid.current);
};

onKeys(document, () => {
  if (document.querySelector('dialog[open]') !== null) return {};
  return {
    ArrowLeft: () => grid.move(-1, 0),
    ArrowRight: () => grid.move(1, 0),
    ArrowUp: () => grid.move(0, -1),
    ArrowDown: () => grid.move(0, 1),
    ' ': withCurrent(() => grid.toggle()),
    x: withCurrent(({ id }) => toggleAgain(id)),
    c: withCurrent(({ id }) => toggleCompare(id)),
    '/': () => toolbar.focusSearch(),
    ...ratingKeys((rating) => withCurrent(({ id }) => marks.set(id, { rating }))()),
  };
});

marks.onChange = (id) => {
  grid.update(id);
  big.update(id);
  compareView.update(id);
};
marks.onTrouble = (text) => {
  trouble.textContent = text;
};
addEventListener('hashchange', () => {
  if (location.hash.slice(1) !== fragmentOf(view)) show(viewOf(location.hash));
});
document.body.append(
  toolbar.element,
  make('main', {}, trouble, empty, grid.element),
  big.element,
  compareView.element,
  exportView.element,
);
show(view);

function download(name: string, type: string, text: string): void {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
