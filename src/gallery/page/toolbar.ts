import type { GalleryItem } from '../data.ts';
import { button, make, mark } from './dom.ts';
import { orders, plainView, ratings, type View } from './select.ts';

/** Dependencies of the toolbar. */
export interface ToolbarDeps {
  change: (change: Partial<View>) => void;
  compare: () => void;
  exportAll: () => void;
}

/** The bar above the items, with the search, the filters, the sort order and the layout. */
export class Toolbar {
  readonly element: HTMLElement;
  readonly #search: HTMLInputElement;
  readonly #selects = new Map<keyof View, HTMLSelectElement>();
  readonly #layouts: HTMLButtonElement[];
  readonly #count = make('p', { class: 'count', role: 'status' });
  readonly #compare: HTMLButtonElement;
  readonly #clear: HTMLButtonElement;

  constructor(items: readonly GalleryItem[], deps: ToolbarDeps) {
    this.#search = make('input', {
      type: 'search',
      placeholder: 'Search  /',
      'aria-label': 'Search prompts, names, models, notes',
      oninput: () => deps.change({ text: this.#search.value }),
    });
    this.#layouts = ['grid', 'list'].map((layout) =>
      make('button', { type: 'button', onclick: () => deps.change({ layout }) }, layout),
    );
    this.#compare = button('Compare', 'Play the jobs picked with c side by side', deps.compare);
    const { text, state, model, protocol, tag, rating } = plainView;
    const filters = { text, state, model, protocol, tag, rating };
    this.#clear = button('Clear', 'Show everything', () => deps.change(filters));
    this.element = make(
      'header',
      {},
      make('h1', {}, 'mgw gallery'),
      this.#count,
      make('div', { class: 'search', role: 'search' }, this.#search),
      make(
        'details',
        { class: 'filters' },
        make('summary', {}, 'Filters'),
        make('div', { class: 'selects' }, ...this.#filters(items, deps), this.#clear),
      ),
      make('div', { class: 'layouts', role: 'group', 'aria-label': 'Layout' }, ...this.#layouts),
      this.#compare,
      button('Export', 'Export ratings, and the jobs to remake', deps.exportAll),
    );
  }

  /** Updates the toolbar for a view. `shown`, `all` and `picked` are numbers of items. */
  show(view: View, shown: number, all: number, picked: number): void {
    if (this.#search.value !== view.text) this.#search.value = view.text;
    for (const [name, select] of this.#selects) select.value = view[name];
    this.#layouts.forEach((layout) =>
      mark(layout, 'aria-pressed', String(layout.textContent === view.layout)),
    );
    this.#count.textContent = shown === all ? `${all} jobs` : `${shown} of ${all} jobs`;
    this.#compare.textContent = picked > 0 ? `Compare (${picked})` : 'Compare';
    this.#compare.disabled = picked < 2;
    this.#clear.disabled = shown === all;
  }

  focusSearch(): void {
    this.#search.focus();
    this.#search.select();
  }

  #filters(items: readonly GalleryItem[], deps: ToolbarDeps): HTMLElement[] {
    const rated = Object.entries(ratings).map(([value, [label]]): [string, string] => [value, label]);
    const sorted = Object.entries(orders).map(([value, [label]]): [string, string] => [value, label]);
    const of = (values: (string | undefined)[]): [string, string][] =>
      [...new Set(values.filter((value) => value !== undefined))].sort().map((value) => [value, value]);
    return [
      this.#select('state', 'State', [['', 'any state'], ...of(items.map(({ state }) => state))], deps),
      this.#select('model', 'Model', [['', 'any model'], ...of(items.map(({ model }) => model))], deps),
      this.#select(
        'protocol',
        'Protocol',
        [['', 'any protocol'], ...of(items.map(({ protocol }) => protocol))],
        deps,
      ),
      this.#select('tag', 'Tag', [['', 'any tag'], ...of(items.flatMap(({ tags = [] }) => tags))], deps),
      this.#select('rating', 'Rating', [['', 'any rating'], ...rated], deps),
      this.#select('sort', 'Order', sorted, deps),
    ];
  }

  #select(
    name: keyof View,
    label: string,
    options: [value: string, label: string][],
    { change }: ToolbarDeps,
  ): HTMLElement {
    const choices = options.map(([value, text]) => make('option', { value }, text));
    const select = make(
      'select',
      { 'aria-label': label, onchange: () => change({ [name]: select.value }) },
      ...choices,
    );
    this.#selects.set(name, select);
    // Hides a filter that has no choices.
    select.hidden = options.length < 3 && name !== 'sort';
    return select;
  }
}
