import { type GalleryFile, loudness, parts } from '../data.ts';
import { make, mark } from './dom.ts';
import { release } from './posters.ts';

/** The maximum size, in bytes, of a file whose waveform is computed in the browser. */
const maxBytes = 32 * 1024 * 1024;

const peaksByHref = new Map<string, Promise<string | undefined>>();
let queue: Promise<unknown> = Promise.resolve();

/**
 * Returns a sound's loudness as measured by mgw. If mgw did not measure it, measures it in the browser, one file at a
 * time. Returns undefined if the browser is not allowed to read the file, as in a page opened from a file.
 */
export function peaksOf(file: GalleryFile): Promise<string | undefined> {
  if (file.peaks !== undefined) return Promise.resolve(file.peaks);
  if (!location.protocol.startsWith('http') || file.bytes > maxBytes) return Promise.resolve(undefined);
  let peaks = peaksByHref.get(file.href);
  if (peaks === undefined) {
    peaks = queue.then(() => decoded(file.href)).catch(() => undefined);
    queue = peaks;
    peaksByHref.set(file.href, peaks);
  }
  return peaks;
}

async function decoded(href: string): Promise<string> {
  const response = await fetch(href);
  const context = new OfflineAudioContext(1, 1, 24_000);
  const samples = (await context.decodeAudioData(await response.arrayBuffer())).getChannelData(0);
  return loudness(samples, 0.01);
}

const svg = 'http://www.w3.org/2000/svg';

/** Draws a sound's loudness as bars, or as a plain line if the loudness is unknown. */
export function waveform(peaks: string | undefined): SVGSVGElement {
  const drawing = document.createElementNS(svg, 'svg');
  mark(drawing, 'viewBox', `0 0 ${parts} 20`);
  mark(drawing, 'preserveAspectRatio', 'none');
  mark(drawing, 'aria-hidden', 'true');
  mark(drawing, 'class', 'wave');
  const path = document.createElementNS(svg, 'path');
  const bars = peaks === undefined ? 'M0 10H96' : barsOf(peaks);
  mark(path, 'd', bars);
  mark(path, 'class', peaks === undefined ? 'plain' : 'bars');
  drawing.append(path);
  return drawing;
}

function barsOf(peaks: string): string {
  const step = parts / peaks.length;
  return Array.from(peaks, (digit, place) => {
    const half = Math.max(0.4, Number(digit));
    return `M${((place + 0.5) * step).toFixed(2)} ${10 - half}v${2 * half}`;
  }).join('');
}

/** Creates a sound's waveform, which shows the playback position. Clicking the waveform plays the sound from there. */
export function soundOf(file: GalleryFile, player: SoundPlayer): HTMLElement {
  const head = make('span', { class: 'head' });
  const box = make('div', { class: 'sound' }, waveform(file.peaks), head);
  if (file.peaks === undefined)
    void peaksOf(file).then((peaks) => {
      if (peaks !== undefined) box.firstChild?.replaceWith(waveform(peaks));
      else box.title = 'No waveform: a page opened from a file can play sounds, but not read them.';
    });
  box.addEventListener('click', (event) => {
    event.stopPropagation();
    const { left, width } = box.getBoundingClientRect();
    player.toggle(file.href, box, (event.clientX - left) / width);
  });
  return box;
}

/** Plays one sound at a time. */
export class SoundPlayer {
  #audio: HTMLAudioElement | undefined;
  #href = '';
  #box: HTMLElement | undefined;

  /** Stops the sound if it is playing. Otherwise, plays it from `place`, a fraction of its length. */
  toggle(href: string, box: HTMLElement, place = 0): void {
    const isOwn = this.#href === href && this.#audio?.paused === false;
    this.stop();
    if (isOwn) return;
    const audio = new Audio(href);
    [this.#audio, this.#href, this.#box] = [audio, href, box];
    box.classList.add('playing');
    audio.addEventListener('loadedmetadata', () => {
      if (place > 0.05) audio.currentTime = place * audio.duration;
    });
    audio.addEventListener('timeupdate', () => {
      box.style.setProperty('--played', String(audio.currentTime / audio.duration || 0));
    });
    audio.addEventListener('ended', () => this.stop());
    audio.play().catch(() => this.stop());
  }

  stop(): void {
    if (this.#audio !== undefined) release(this.#audio);
    this.#box?.classList.remove('playing');
    this.#box?.style.removeProperty('--played');
    this.#audio = undefined;
  }
}
