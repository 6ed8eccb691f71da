import type { GalleryData } from '../data.ts';
import { commandBox } from './big.ts';
import { make } from './dom.ts';
import type { Marks } from './marks.ts';
import { nameOf, ratingsText, redoRows } from './select.ts';

/** Takes out what was said: the ratings, and a manifest of what to make again. */
export class ExportView {
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
    const said = `${ratings.length} ${ratings.length === 1 ? 'job has' : 'jobs have'} a rating or a note.`;
    const saved = this.#data.save === undefined ? '' : ' They are in the ledger already.';
    const save = make('button', { type: 'button' }, 'Save ratings.json');
    save.disabled = ratings.length === 0;
    save.addEventListener('click', () => download('ratings.json', 'application/json', ratingsText(ratings)));
    return make('section', {}, make('p', {}, said + saved), save, commandBox(this.#data.commands.rate));
  }

  #redo(): HTMLElement {
    const options = [
      ['0', 'nothing else'],
      ['1', 'what is rated 1'],
      ['2', 'what is rated 2 or less'],
      ['3', 'what is rated 3 or less'],
    ].map(([value, text]) => make('option', { value }, text));
    const most = make('select', { 'aria-label': 'Rated' }, ...options);
    const seeds = make('input', { type: 'checkbox' });
    const told = make('p', { role: 'status' });
    const save = make('button', { type: 'button' }, 'Save redo.jsonl');
    let lines: string[] = [];
    const count = (): void => {
      const rows = redoRows(this.#data.items, this.#marks.of, Number(most.value), seeds.checked);
      lines = rows.lines;
      const left = rows.without.map((item) => `${nameOf(item)} (${item.noRedo ?? ''})`).join(', ');
      told.textContent = `${lines.length} to make again.${left && ` There can be no row of: ${left}.`}`;
      save.disabled = lines.length === 0;
    };
    for (const input of [most, seeds]) input.addEventListener('change', count);
    save.addEventListener('click', () =>
      download('redo.jsonl', 'application/jsonl', lines.map((line) => `${line}\n`).join('')),
    );
    count();
    return make(
      'section',
      {},
      make('p', {}, 'Make again what is marked with x, and ', most, '.'),
      make('label', {}, seeds, ' with the same seeds'),
      told,
      save,
      commandBox(this.#data.commands.redo),
    );
  }
}

function download(name: string, type: string, text: string): void {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make('a', { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
