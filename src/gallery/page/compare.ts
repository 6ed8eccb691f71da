import type { GalleryItem } from '../data.ts';
import { button, foreign, make, mark, onKeys, ratingKeys, stars, type Stars } from './dom.ts';
import type { Marks } from './marks.ts';
import { release } from './posters.ts';
import { factsOf, nameOf, promptOf } from './select.ts';
import { waveform } from './sound.ts';

/** The maximum number of items to play at once, because each needs a decoder. */
export const maxCompared = 9;
/** The maximum lead of one player over another, in seconds. */
const tolerance = 0.04;

interface Pane {
  item: GalleryItem;
  element: HTMLElement;
  media: HTMLMediaElement | undefined;
  stars: Stars;
}

/** Plays several items side by side, in sync with the slowest. */
export class CompareView {
  readonly element = make('dialog', { class: 'compare', 'aria-label': 'Side by side' });
  readonly #marks: Marks;
  #panes: Pane[] = [];
  /** The index of the active pane: its sound is on, and the rating keys apply to it. */
  #current = 0;
  #shown = '';
  #isPlaying = false;
  readonly #play = make('button', { type: 'button', class: 'play', onclick: () => this.#toggle() }, 'Play');
  readonly #seek = make('input', {
    type: 'range',
    min: 0,
    max: 1000,
    value: 0,
    'aria-label': 'Time',
    oninput: () => this.#jump((Number(this.#seek.value) / 1000) * this.#length),
  });
  readonly #clock = make('span', { class: 'clock' });

  constructor(marks: Marks, close: () => void) {
    this.#marks = marks;
    this.element.addEventListener('cancel', (event) => {
      event.preventDefault();
      close();
    });
    this.#close = button('✕', 'close (Esc)', close);
    onKeys(this.element, () => ({
      ' ': () => this.#toggle(),
      ArrowLeft: () => this.#point(this.#current - 1),
      ArrowRight: () => this.#point(this.#current + 1),
      x: () => this.#again(),
      ...ratingKeys((rating) => this.#setMark({ rating })),
    }));
  }

  readonly #close: HTMLButtonElement;

  /** Shows the given items. An empty list closes the view. */
  show(items: readonly GalleryItem[]): void {
    const ids = items.map(({ id }) => id).join();
    if (ids === this.#shown) return;
    this.#shown = ids;
    this.#pause();
    for (const { media } of this.#panes) if (media !== undefined) release(media);
    if (items.length === 0) {
      this.#panes = [];
      this.element.close();
      return;
    }
    this.#panes = items.slice(0, maxCompared).map((item, place) => this.#paneOf(item, place));
    const columns = this.#panes.length < 4 ? this.#panes.length : Math.ceil(Math.sqrt(this.#panes.length));
    const panes = make('div', { class: 'panes' }, ...this.#panes.map(({ element }) => element));
    panes.style.setProperty('--columns', String(columns));
    const controls = make('div', { class: 'controls' }, this.#play, this.#seek, this.#clock, this.#close);
    this.element.replaceChildren(panes, controls);
    if (!this.element.open) this.element.showModal();
    this.#point(0);
    this.#start();
  }

  /** Updates an item's rating, and whether it is marked to be remade. */
  update(id: string): void {
    const pane = this.#panes.find(({ item }) => item.id === id);
    const { rating, again = false } = this.#marks.of(id);
    pane?.stars.show(rating);
    pane?.element.classList.toggle('again', again);
  }

  get #length(): number {
    return Math.max(0, ...this.#panes.map(({ media }) => media?.duration || 0));
  }

  get #leader(): HTMLMediaElement | undefined {
    return this.#panes.map(({ media }) => media).find((media) => media && media.duration === this.#length);
  }

  #paneOf(item: GalleryItem, place: number): Pane {
    const file = item.files.find(({ kind }) => kind !== 'other');
    const name = file?.kind === 'audio' ? 'audio' : 'video';
    const media =
      file &&
      make(name, {
        preload: 'auto',
        playsinline: true,
        tabindex: -1,
        'aria-label': nameOf(item),
        src: file.href,
      });
    const content =
      file === undefined || media === undefined
        ? make(
            'p',
            { class: 'lack' },
            foreign(item.reason ?? 'This job has no file that a browser can play.'),
          )
        : file.kind === 'audio'
          ? make('div', { class: 'heard' }, waveform(file.peaks), media)
          : media;
    const rating = stars((given) => this.#marks.set(item.id, { rating: given }));
    const element = make(
      'figure',
      { class: `pane ${file?.kind ?? 'none'}`, onclick: () => this.#point(place) },
      content,
      make(
        'figcaption',
        { title: promptOf(item) },
        foreign(promptOf(item) || nameOf(item), { class: 'prompt' }),
        make('span', { class: 'facts' }, ...[nameOf(item), ...factsOf(item)].map((fact) => foreign(fact))),
        rating.element,
      ),
    );
    const pane = { item, element, media, stars: rating };
    rating.show(this.#marks.of(item.id).rating);
    element.classList.toggle('again', this.#marks.of(item.id).again ?? false);
    return pane;
  }

  #point(place: number): void {
    const last = this.#panes.length - 1;
    this.#current = Math.min(last, Math.max(0, place));
    this.#panes.forEach(({ element, media }, index) => {
      mark(element, 'aria-current', index === this.#current && 'true');
      if (media !== undefined) media.muted = index !== this.#current;
    });
  }

  #setMark(change: Parameters<Marks['set']>[1]): void {
    const pane = this.#panes[this.#current];
    if (pane !== undefined) this.#marks.set(pane.item.id, change);
  }

  #again(): void {
    const id = this.#panes[this.#current]?.item.id ?? '';
    this.#setMark({ again: !this.#marks.of(id).again });
  }

  // Starts the players only when all are ready, because a late player would lag from the first frame.
  #start(): void {
    const ids = this.#shown;
    const all = this.#panes.flatMap(({ media }) => (media === undefined ? [] : [ready(media)]));
    void Promise.all(all).then(() => {
      if (ids === this.#shown && ids !== '') this.#toggle(true);
    });
  }

  #toggle(isPlaying = !this.#isPlaying): void {
    if (!isPlaying) {
      this.#pause();
      return;
    }
    const at = this.#leader?.currentTime ?? 0;
    this.#jump(at >= this.#length - 0.05 ? 0 : at);
    this.#isPlaying = true;
    this.#play.textContent = 'Pause';
    for (const { media } of this.#panes) media?.play().catch(() => undefined);
    requestAnimationFrame(() => this.#keepStep());
  }

  #pause(): void {
    this.#isPlaying = false;
    this.#play.textContent = 'Play';
    for (const { media } of this.#panes) media?.pause();
  }

  #jump(time: number): void {
    for (const { media } of this.#panes)
      if (media !== undefined) media.currentTime = Math.min(time, media.duration || 0);
    this.#tell(time);
  }

  // Slows down or pauses the players that are ahead. Seeking in the late players would delay them further, because they
  // would have to decode more frames than they can decode in time.
  #keepStep(): void {
    if (!this.#isPlaying) return;
    const running = this.#panes.flatMap(({ media }) => (media && isRunning(media) ? [media] : []));
    if (running.length === 0) {
      if (this.#length > 0) this.#toggle(true);
      return;
    }
    const time = Math.min(...running.map(({ currentTime }) => currentTime));
    for (const media of running) {
      const ahead = media.currentTime - time;
      media.playbackRate = ahead > tolerance ? 0.75 : 1;
      if (ahead > 4 * tolerance) media.pause();
      else if (media.paused) media.play().catch(() => undefined);
    }
    this.#tell(time);
    requestAnimationFrame(() => this.#keepStep());
  }

  #tell(time: number): void {
    this.#seek.value = String(this.#length > 0 ? (1000 * time) / this.#length : 0);
    this.#clock.textContent = `${time.toFixed(1)} / ${this.#length.toFixed(1)} s`;
  }
}

function isRunning(media: HTMLMediaElement): boolean {
  return media.error === null && !media.ended && media.currentTime < media.duration;
}

function ready(media: HTMLMediaElement): Promise<void> {
  if (media.readyState >= 3) return Promise.resolve();
  return new Promise((resolve) => {
    for (const name of ['canplay', 'error', 'emptied'])
      media.addEventListener(name, () => resolve(), { once: true });
  });
}
