import type { GalleryFile, GalleryItem } from '../data.ts';
import { button, foreign, make, mark, onKeys, ratingKeys, stars } from './dom.ts';
import type { Marks } from './marks.ts';
import { release } from './posters.ts';
import { lengthText, mismatchesOf, nameOf, priceText, promptOf, timeText } from './select.ts';
import { peaksOf, waveform } from './sound.ts';

/** Callbacks of the big view. */
export interface BigDeps {
  marks: Marks;
  step: (by: number) => void;
  close: () => void;
  compare: (item: GalleryItem) => void;
  search: () => void;
  /** Returns the number of items to compare with an item, including the item itself. */
  relativesOf: (item: GalleryItem) => number;
}

/** The view of a single item with all its details, as large as the screen allows. */
export class BigView {
  readonly element = make('dialog', { class: 'big', 'aria-label': 'Job' });
  readonly #deps: BigDeps;
  #item: GalleryItem | undefined;
  #player: HTMLMediaElement | undefined;
  #stars = stars(() => undefined);
  #again: HTMLButtonElement | undefined;
  #note: HTMLTextAreaElement | undefined;

  constructor(deps: BigDeps) {
    this.#deps = deps;
    this.element.addEventListener('cancel', (event) => {
      event.preventDefault();
      deps.close();
    });
    this.element.addEventListener('click', ({ target }) => {
      if (target === this.element) deps.close();
    });
    onKeys(this.element, () => ({
      ArrowLeft: () => deps.step(-1),
      ArrowRight: () => deps.step(1),
      ArrowUp: () => deps.step(-1),
      ArrowDown: () => deps.step(1),
      ' ': () => this.#toggle(),
      x: () => this.#toggleAgain(),
      c: () => this.#item && deps.compare(this.#item),
      '/': () => deps.search(),
      ...ratingKeys((rating) => this.#item && deps.marks.set(this.#item.id, { rating })),
    }));
  }

  /** Shows an item, or closes the view if `item` is undefined. */
  show(item: GalleryItem | undefined, place = ''): void {
    if (item === this.#item && this.element.open === (item !== undefined)) return;
    this.#keepNote();
    this.#release();
    this.#item = item;
    if (item === undefined) {
      this.element.close();
      return;
    }
    this.element.replaceChildren(this.#stage(item), this.#side(item, place));
    this.update(item.id);
    if (!this.element.open) this.element.showModal();
    this.element.querySelector<HTMLElement>('.stage')?.focus();
  }

  /** Updates the rating and note, if the view shows this item. */
  update(id: string): void {
    if (this.#item?.id !== id) return;
    const { rating, note = '', again = false } = this.#deps.marks.of(id);
    this.#stars.show(rating);
    if (this.#again !== undefined) mark(this.#again, 'aria-pressed', String(again));
    if (this.#note !== undefined && document.activeElement !== this.#note) this.#note.value = note;
  }

  #toggle(): void {
    if (this.#player?.paused === true) this.#player.play().catch(() => undefined);
    else this.#player?.pause();
  }

  #toggleAgain(): void {
    const { marks } = this.#deps;
    if (this.#item !== undefined) marks.set(this.#item.id, { again: !marks.of(this.#item.id).again });
  }

  // Called whenever the view closes or shows another item, so that a typed note is always saved.
  #keepNote(): void {
    if (this.#item === undefined || this.#note === undefined) return;
    const note = this.#note.value.trim();
    if (note !== (this.#deps.marks.of(this.#item.id).note ?? ''))
      this.#deps.marks.set(this.#item.id, { note });
  }

  #release(): void {
    for (const media of this.element.querySelectorAll('video, audio')) release(media as HTMLMediaElement);
    this.#player = undefined;
  }

  #stage(item: GalleryItem): HTMLElement {
    const stage = make('div', { class: 'stage', tabindex: -1 });
    const players = item.files.map((file) => playerOf(file));
    this.#player = players.map(({ media }) => media).find((media) => media !== undefined);
    if (players.length === 0)
      stage.append(make('p', { class: 'lack' }, foreign(item.reason ?? `This job is ${item.state}.`)));
    const panes = players.map(({ element }, index) =>
      players.length === 1 ? element : captioned(element, item.files[index]?.name ?? ''),
    );
    stage.append(...panes);
    stage.classList.toggle('several', players.length > 1);
    if (!matchMedia('(prefers-reduced-motion: reduce)').matches) this.#player?.play().catch(() => undefined);
    return stage;
  }

  #side(item: GalleryItem, place: string): HTMLElement {
    const { marks, step, close, compare } = this.#deps;
    this.#stars = stars((rating) => marks.set(item.id, { rating }));
    this.#again = button('↻ Remake', 'x', () => this.#toggleAgain());
    this.#note = make('textarea', {
      rows: 3,
      placeholder: 'Note',
      'aria-label': 'Note',
      maxlength: 4000,
      onchange: () => this.#keepNote(),
    });
    const count = this.#deps.relativesOf(item);
    return make(
      'div',
      { class: 'side' },
      make(
        'div',
        { class: 'nav' },
        button('←', 'previous', () => step(-1)),
        make('span', { class: 'place' }, place),
        button('→', 'next', () => step(1)),
        button('✕', 'close (Esc)', close),
      ),
      make('h2', {}, foreign(nameOf(item))),
      make('div', { class: 'say' }, this.#stars.element, this.#again),
      this.#note,
      foreign(promptOf(item), { class: 'full-prompt' }),
      count > 1 && button(`◫ Compare ${count} takes`, 'c', () => compare(item)),
      item.reason !== undefined &&
        item.files.length > 0 &&
        make('p', { class: 'reason' }, foreign(item.reason)),
      item.command !== undefined && commandBox(item.command),
      factList(item),
    );
  }
}

/** Creates a box with a command and a button that copies the command. */
export function commandBox(command: string): HTMLElement {
  const copy = button('Copy', 'copy the command', () => {
    navigator.clipboard?.writeText(command).then(
      () => (copy.textContent = 'Copied'),
      () => getSelection()?.selectAllChildren(code),
    );
  });
  const code = make('code', { tabindex: 0 }, command);
  return make('div', { class: 'command' }, code, copy);
}

function factList(item: GalleryItem): HTMLElement {
  const { id, key, protocol, model, state, seed, duration, resolution, tags, created, files } = item;
  const facts: [string, string | undefined][] = [
    ['state', state],
    ['model', model],
    ['protocol', protocol],
    ['seed', seed],
    ['duration', duration && lengthText(duration)],
    ['resolution', resolution],
    ['delivered', files.flatMap(({ delivered }) => delivered || []).join('; ')],
    ['differs', mismatchesOf(item).join(', ')],
    ['price', priceText(item)],
    ['tags', tags?.join(', ')],
    ['made', timeText(created)],
    ['key', key],
    ['job', id],
    ['file', files.map(({ name }) => name).join(', ') || undefined],
  ];
  const rows = facts.flatMap(([name, value]) =>
    value ? [make('dt', {}, name), make('dd', {}, foreign(value))] : [],
  );
  return make('dl', {}, ...rows);
}

interface Player {
  element: HTMLElement;
  media?: HTMLMediaElement;
}

function playerOf(file: GalleryFile): Player {
  if (file.kind === 'video') {
    const media = make('video', {
      controls: true,
      playsinline: true,
      loop: true,
      preload: 'auto',
      'aria-label': file.name,
      src: file.href,
    });
    return { element: media, media };
  }
  if (file.kind === 'other') return { element: unplayable(file) };
  const media = make('audio', {
    controls: true,
    preload: 'metadata',
    'aria-label': file.name,
    src: file.href,
  });
  const wave = make(
    'div',
    { class: 'sound large', title: 'Play from here' },
    waveform(file.peaks),
    make('span', { class: 'head' }),
  );
  void peaksOf(file).then((peaks) => peaks && wave.firstChild?.replaceWith(waveform(peaks)));
  media.addEventListener('timeupdate', () =>
    wave.style.setProperty('--played', String(media.currentTime / media.duration || 0)),
  );
  wave.addEventListener('click', ({ clientX }) => {
    const { left, width } = wave.getBoundingClientRect();
    media.currentTime = ((clientX - left) / width) * (media.duration || 0);
    media.play().catch(() => undefined);
  });
  return { element: make('div', { class: 'hearing' }, wave, media), media };
}

// Adds the file's name to a player.
function captioned(element: HTMLElement, name: string): HTMLElement {
  return make('figure', { class: 'one' }, element, make('figcaption', {}, foreign(name)));
}

function unplayable({ href, name }: GalleryFile): HTMLElement {
  const link = make('a', { href, download: name }, foreign(name));
  return make('p', { class: 'lack' }, 'Browsers cannot play this kind of file: ', link);
}
