/** The maximum number of posters to make concurrently, because each needs a decoder. */
const maxConcurrent = 3;
/** The maximum number of cached posters. The least recently used posters are removed. */
const maxCached = 400;
const width = 480;
const patienceMs = 15_000;

interface PosterRequest {
  href: string;
  done: (poster: ImageBitmap | undefined) => void;
}

/**
 * Makes posters from frames of videos, a few at a time. The pixels of a poster are never read, because the browser does
 * not allow this in a page opened from a file.
 */
export class Posters {
  readonly #cached = new Map<string, ImageBitmap>();
  readonly #queue: PosterRequest[] = [];
  #busy = 0;

  /**
   * Requests a poster. `done` is called once, unless the request is cancelled.
   * @returns a function that cancels the request
   */
  request(href: string, done: PosterRequest['done']): () => void {
    const cached = this.#cached.get(href);
    if (cached !== undefined) {
      this.#cached.delete(href);
      this.#cached.set(href, cached);
      done(cached);
      return () => undefined;
    }
    const posterRequest = { href, done };
    this.#queue.push(posterRequest);
    this.#next();
    return () => {
      const place = this.#queue.indexOf(posterRequest);
      if (place >= 0) this.#queue.splice(place, 1);
      posterRequest.done = () => undefined;
    };
  }

  #next(): void {
    if (this.#busy >= maxConcurrent) return;
    // Take the latest request first, because tiles are created from last to first, and the latest ones are visible.
    const posterRequest = this.#queue.pop();
    if (posterRequest === undefined) return;
    this.#busy += 1;
    void posterOf(posterRequest.href)
      .catch(() => undefined)
      .then((poster) => {
        this.#busy -= 1;
        if (poster !== undefined) this.#cache(posterRequest.href, poster);
        posterRequest.done(poster);
        this.#next();
      });
  }

  #cache(href: string, poster: ImageBitmap): void {
    this.#cached.set(href, poster);
    const [oldest] = this.#cached;
    if (this.#cached.size <= maxCached || oldest === undefined) return;
    this.#cached.delete(oldest[0]);
    oldest[1].close();
  }
}

async function posterOf(href: string): Promise<ImageBitmap> {
  const video = document.createElement('video');
  video.muted = true;
  video.preload = 'auto';
  try {
    await event(video, 'loadeddata', () => (video.src = href));
    const second = Math.min(1, video.duration / 3);
    if (second > 0) await event(video, 'seeked', () => (video.currentTime = second));
    const resizeWidth = Math.min(width, video.videoWidth);
    return await createImageBitmap(video, { resizeWidth, resizeQuality: 'medium' });
  } finally {
    release(video);
  }
}

function event(video: HTMLVideoElement, name: string, begin: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error('it takes too long')), patienceMs);
    video.addEventListener(
      name,
      () => {
        clearTimeout(late);
        resolve();
      },
      { once: true },
    );
    video.addEventListener('error', () => reject(new Error('it cannot be played')), { once: true });
    begin();
  });
}

/** Releases a player's decoder and file. */
export function release(media: HTMLMediaElement): void {
  media.pause();
  media.removeAttribute('src');
  media.load();
}
