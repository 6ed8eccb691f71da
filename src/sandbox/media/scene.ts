/** A moving picture made of `columns` x `rows` blocks, each of a single colour, in row order. */
export interface Scene {
  readonly columns: number;
  readonly rows: number;
  /** Returns the colours of picture number `frame`, counted from 0, in a new array. */
  paint(frame: number): Uint32Array;
}

/** A scene's input: the text, the size in blocks, the number of pictures and the frame rate. */
interface SceneOptions {
  prompt: string;
  columns: number;
  rows: number;
  frames: number;
  fps: number;
}

type Random = () => number;
type Shape = (dx: number, dy: number) => boolean;
type Path = (seconds: number) => number;

const disc: Shape = (dx, dy) => dx * dx + dy * dy <= 1;
const allShapes: readonly Shape[] = [
  disc,
  (dx, dy) => Math.abs(dx) + Math.abs(dy) <= 1.1,
  (dx, dy) => Math.max(Math.abs(dx), Math.abs(dy)) <= 0.85,
  (dx, dy) => disc(dx, dy) && !disc(dx * 1.8, dy * 1.8),
];

/**
 * Returns a mosaic whose hues, grain and direction depend on the prompt. A shape in the opposite hue bounces over the
 * mosaic, and a bar along the bottom grows from left to right as the video plays.
 */
export function sceneFor(options: SceneOptions): Scene {
  const { columns, rows, frames, fps } = options;
  const random = seededRandom(hashText(options.prompt));
  const hue = random() * 360;
  const background = mosaic(columns, rows, hue, random);
  const drawShape = bouncingShape(columns, rows, hslColour(hue + 150 + random() * 60, 0.9, 0.6), random);
  const barRows = Math.max(1, Math.round(rows / 30));
  const barColour = hslColour(hue + 180, 0.2, 0.92);
  const paint = (frame: number): Uint32Array => {
    const picture = background.slice();
    drawShape(picture, frame / fps);
    const filled = Math.ceil((columns * (frame + 1)) / frames);
    for (let row = rows - barRows; row < rows; row++) {
      picture.fill(barColour, row * columns, row * columns + filled);
    }
    return picture;
  };
  return { columns, rows, paint };
}

/**
 * Returns the mosaic's colours. The number of tiles is the same for every size, so 4K needs only slightly more
 * bytes than 720p.
 */
function mosaic(columns: number, rows: number, hue: number, random: Random): Uint32Array {
  const tile = Math.max(1, Math.round(Math.min(columns, rows) / 22));
  const tilesPerRow = Math.ceil(columns / tile);
  const angle = random() * 2 * Math.PI;
  const spread = 30 + random() * 60;
  const grain = 0.03 + random() * 0.09;
  const colours: Colour[] = Array.from({ length: tilesPerRow * Math.ceil(rows / tile) }, (_, index) => {
    const x = ((index % tilesPerRow) * tile) / columns - 0.5;
    const y = (Math.floor(index / tilesPerRow) * tile) / rows - 0.5;
    const distance = x * Math.cos(angle) + y * Math.sin(angle);
    return hslColour(hue + spread * distance, 0.6, 0.32 + 0.25 * distance + grain * (random() - 0.5));
  });
  return Uint32Array.from({ length: columns * rows }, (_, index) => {
    const tileColumn = Math.floor((index % columns) / tile);
    const tileRow = Math.floor(Math.floor(index / columns) / tile);
    return colours[tileRow * tilesPerRow + tileColumn] ?? 0;
  });
}

function bouncingShape(columns: number, rows: number, colour: Colour, random: Random) {
  const shape = allShapes[Math.floor(random() * allShapes.length)] ?? disc;
  const radius = Math.max(1, Math.min(columns, rows) * (0.12 + random() * 0.08));
  const xAt = bounce(columns, radius, random);
  const yAt = bounce(rows, radius, random);
  return (picture: Uint32Array, seconds: number): void => {
    const [x, y] = [xAt(seconds), yAt(seconds)];
    for (let row = Math.max(0, Math.floor(y - radius)); row < Math.min(rows, y + radius); row++) {
      for (
        let column = Math.max(0, Math.floor(x - radius));
        column < Math.min(columns, x + radius);
        column++
      ) {
        if (shape((column + 0.5 - x) / radius, (row + 0.5 - y) / radius)) {
          picture[row * columns + column] = colour;
        }
      }
    }
  };
}

/** Returns a path that bounces between two walls, 1.2 to 3.2 s each way, from a random start. */
function bounce(length: number, radius: number, random: Random): Path {
  const crossing = 1.2 + random() * 2;
  const start = random() * 2;
  const range = Math.max(0, length - 2 * radius);
  return (seconds) => radius + range * Math.abs(((((start + seconds / crossing) % 2) + 2) % 2) - 1);
}

/**
 * Returns a 32-bit hash of a string (FNV-1a over its UTF-8 bytes). Used as a seed, so that each prompt produces
 * different media.
 */
export function hashText(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

/**
 * Returns a repeatable source of numbers in [0, 1) (mulberry32). The same seed produces the same media
 * on every machine.
 */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A colour as `Y << 16 | Cb << 8 | Cr`, in 8-bit BT.709 in studio range. */
export type Colour = number;

/** Packs three 8-bit components into a colour. */
export function packColour(y: number, cb: number, cr: number): Colour {
  return (y << 16) | (cb << 8) | cr;
}

/** Returns the colour for a hue, in degrees. Saturation and lightness are clamped to 0..1. */
export function hslColour(hue: number, saturation: number, lightness: number): Colour {
  const light = Math.min(1, Math.max(0, lightness));
  const chroma = Math.min(1, Math.max(0, saturation)) * Math.min(light, 1 - light);
  const channel = (offset: number): number => {
    const k = (((offset + hue / 30) % 12) + 12) % 12;
    return light - chroma * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  };
  return fromRgb(channel(0), channel(8), channel(4));
}

function fromRgb(red: number, green: number, blue: number): Colour {
  const luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  const cb = (blue - luma) / 1.8556;
  const cr = (red - luma) / 1.5748;
  return packColour(Math.round(16 + 219 * luma), Math.round(128 + 224 * cb), Math.round(128 + 224 * cr));
}

/** The melody for spoken text: one short note for each character, and a rest for a character that is not spoken. */
export interface Melody {
  /** The duration, in seconds. */
  readonly seconds: number;
  /**
   * Returns the pitch, in hertz, at the given time; 0 in a rest and after the end. Calls with ascending times are
   * fastest.
   */
  pitchAt(seconds: number): number;
}

const minMs = 500;
const minHertz = 220;
/** Two octaves of a pentatonic scale, in semitones. No two of its notes are dissonant. */
const scaleSemitones = [0, 2, 4, 7, 9, 12, 14, 16, 19, 21];

/**
 * The duration of a character, in milliseconds. Chinese, Japanese and Korean characters are syllables,
 * which last longer.
 */
const letterMs = 60;
const syllableMs = 200;
const syllablePattern = /[\p{Script=Han}\p{Script=Hangul}\p{Script=Hiragana}\p{Script=Katakana}]/u;

/**
 * Returns the melody for text: 60 ms for each character (code point), or 200 ms for a syllable; at least half a
 * second in total.
 */
export function melodyOf(text: string): Melody {
  const characters = Array.from(text);
  const pitches = Float64Array.from(characters, pitchOf);
  let end = 0;
  const ends = Float64Array.from(characters, (character) => (end += durationOf(character)));
  let at = 0;
  return {
    seconds: Math.max(minMs, end) / 1000,
    pitchAt: (seconds) => {
      const ms = seconds * 1000;
      while (at > 0 && ms < (ends[at - 1] ?? 0)) at -= 1;
      while (at < ends.length && ms >= (ends[at] ?? 0)) at += 1;
      return pitches[at] ?? 0;
    },
  };
}

/**
 * Returns a tune that lasts `seconds` seconds. Each note lasts a quarter of a second, and `random` (0 to 1) chooses its
 * pitch.
 */
export function tuneOf(random: () => number, seconds: number): Melody {
  const notes = Array.from({ length: Math.ceil(seconds * 4) }, () =>
    noteOf(Math.floor(random() * scaleSemitones.length)),
  );
  return { seconds, pitchAt: (moment) => notes[Math.floor(moment * 4)] ?? 0 };
}

function durationOf(character: string): number {
  return character > '\u1100' && syllablePattern.test(character) ? syllableMs : letterMs;
}

function pitchOf(character: string): number {
  return /[\p{L}\p{N}]/u.test(character) ? noteOf(character.codePointAt(0) ?? 0) : 0;
}

function noteOf(number: number): number {
  return minHertz * 2 ** ((scaleSemitones[number % scaleSemitones.length] ?? 0) / 12);
}
