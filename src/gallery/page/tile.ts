import type { GalleryItem } from '../data.ts';
import { foreign, make, mark, stars } from './dom.ts';
import { release, type Posters } from './posters.ts';
import { factsOf, lengthText, type Mark, mismatchesOf, nameOf, promptOf } from './select.ts';
import { soundOf, type SoundPlayer } from './sound.ts';

/** Dependencies of tiles. */
export interface TileDeps {
  posters: Posters;
  sounds: SoundPlayer;
  open: (id: string) => void;
  rate: (id: string, rating: number | undefined) => void;
  toggleAgain: (id: string) => void;
  toggleCompare: (id: string) => void;
}

/** A tile on the page. */
export interface Tile {
  element: HTMLElement;
  /** The element that receives the focus. */
  focus: HTMLElement;
  show(mark: Mark, isCompared: boolean): void;
  /** Starts or stops playing the item. */
  toggle(): void;
  /** Releases the tile's resources. */
  remove(): void;
}

const restMs = 150;
const reduced = matchMedia('(prefers-reduced-motion: reduce)');

/** Creates an item's tile. */
export function tileOf(item: GalleryItem, deps: TileDeps): Tile {
  const { id } = item;
  const media = mediaOf(item, deps);
  const rating = stars((given) => deps.rate(id, given), true);
  const again = toggle('again', 'Remake', 'Remake (x)', () => deps.toggleAgain(id));
  const compared = toggle('compared', 'Compare', 'Compare (c)', () => deps.toggleCompare(id));
  const note = make('span', { class: 'has-note', title: 'This job has a note.' }, 'note');
  const open = make('button', {
    type: 'button',
    class: 'open',
    'aria-label': labelOf(item),
    onclick: () => deps.open(id),
  });
  const element = make(
    'div',
    { class: `tile ${item.state}`, role: 'listitem', 'data-id': id },
    open,
    make('div', { class: 'media' }, media.element, badgeOf(item), lengthOf(item)),
    make(
      'div',
      { class: 'about' },
      foreign(promptOf(item) || nameOf(item), { class: 'prompt' }),
      make('div', { class: 'name' }, foreign(nameOf(item)), note),
      item.reason === undefined
        ? make('div', { class: 'facts' }, ...factsOf(item).map((fact) => foreign(fact)))
        : foreign(item.reason, { class: 'reason', title: item.reason }),
      make('div', { class: 'tools' }, rating.element, compared, again),
    ),
  );
  media.listen(element, open);
  // Focus the tile after a click on a star or a tool, so that keys still act on the tile.
  element.addEventListener('pointerdown', (event) => {
    if ((event.target as Element).closest('.star, .tool') === null) return;
    event.preventDefault();
    open.focus({ preventScroll: true });
  });
  return {
    element,
    focus: open,
    toggle: media.toggle,
    remove: media.remove,
    show: (marks, isCompared) => {
      rating.show(marks.rating);
      mark(again, 'aria-pressed', String(marks.again ?? false));
      mark(compared, 'aria-pressed', String(isCompared));
      note.hidden = !marks.note;
    },
  };
}

function labelOf(item: GalleryItem): string {
  const state = item.state === 'succeeded' ? '' : `${item.state}. `;
  const differs = mismatchesOf(item).length > 0 ? 'Differs from the request. ' : '';
  return `${nameOf(item)}: ${state}${differs}${promptOf(item).slice(0, 200)}`;
}

function toggle(name: string, text: string, label: string, act: () => void): HTMLButtonElement {
  const onclick = (event: Event): void => {
    event.stopPropagation();
    act();
  };
  return make(
    'button',
    { type: 'button', class: `tool ${name}`, title: label, 'aria-label': label, tabindex: -1, onclick },
    text,
  );
}

// Creates a badge with the item's length, which shows that the tile can be played.
function lengthOf({ files: [file], duration }: GalleryItem): HTMLElement | undefined {
  if (file === undefined || file.kind === 'other') return undefined;
  const length = file.delivered?.split(',')[0] ?? (duration && lengthText(duration)) ?? '';
  return make('span', { class: 'plays', 'aria-hidden': 'true' }, `▶ ${length}`.trim());
}

function badgeOf(item: GalleryItem): HTMLElement | undefined {
  const { state, files } = item;
  const isFine = state === 'succeeded' && files.length > 0;
  const count = files.length > 1 ? `${files.length} files` : undefined;
  const differences = mismatchesOf(item).join(', ');
  if (isFine && differences !== '')
    return make('span', { class: 'badge differs', title: differences }, foreign(differences));
  const text = isFine ? count : state === 'succeeded' ? 'no file' : state;
  return text === undefined ? undefined : make('span', { class: 'badge' }, text);
}

interface TileMedia {
  element: HTMLElement | undefined;
  listen(tile: HTMLElement, focus: HTMLElement): void;
  toggle: () => void;
  remove: () => void;
}

function mediaOf(item: GalleryItem, deps: TileDeps): TileMedia {
  const [file] = item.files;
  if (file?.kind === 'video') return videoMedia(file.href, deps.posters);
  if (file?.kind === 'audio') {
    const element = soundOf(file, deps.sounds);
    return { ...still(element), toggle: () => deps.sounds.toggle(file.href, element) };
  }
  return still(make('div', { class: 'nothing', 'aria-hidden': 'true' }, file === undefined ? '∅' : '♪'));
}

function still(element: HTMLElement): TileMedia {
  return { element, listen: () => undefined, toggle: () => undefined, remove: () => undefined };
}

function videoMedia(href: string, posters: Posters): TileMedia {
  const canvas = make('canvas', { class: 'poster', width: 16, height: 9 });
  const element = make('div', { class: 'film' }, canvas);
  // Requests the poster after a pause, so that scrolling past a tile decodes no video.
  let giveUp = (): void => clearTimeout(timer);
  const timer = setTimeout(() => {
    giveUp = posters.request(href, (poster) => {
      if (poster === undefined) element.append(make('span', { class: 'nothing' }, 'cannot be played'));
      else draw(canvas, poster);
    });
  }, restMs);
  let video: HTMLVideoElement | undefined;
  let rest: number | undefined;
  const stop = (): void => {
    clearTimeout(rest);
    if (video === undefined) return;
    release(video);
    video.remove();
    video = undefined;
  };
  const play = (): void => {
    if (video !== undefined) return;
    video = make('video', { class: 'preview', loop: true, playsinline: true, tabindex: -1 });
    video.muted = true;
    video.src = href;
    element.append(video);
    video.play().catch(() => undefined);
  };
  return {
    element,
    toggle: () => (video === undefined ? play() : stop()),
    remove: () => {
      giveUp();
      stop();
    },
    listen: (tile, focus) => {
      tile.addEventListener('pointerenter', ({ pointerType }) => {
        if (pointerType === 'mouse' && !reduced.matches) rest = setTimeout(play, restMs);
      });
      tile.addEventListener('pointerleave', stop);
      focus.addEventListener('blur', stop);
    },
  };
}

function draw(canvas: HTMLCanvasElement, poster: ImageBitmap): void {
  canvas.width = poster.width;
  canvas.height = poster.height;
  canvas.getContext('2d')?.drawImage(poster, 0, 0);
  canvas.classList.add('drawn');
}
