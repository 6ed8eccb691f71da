/** The melody of a text: one short note for each character, and a rest for a character that is not spoken. */
export interface Melody {
  /** How long it lasts, in seconds. */
  readonly seconds: number;
  /** The pitch at a moment, in hertz; 0 in a rest and after the end. Fastest if moments are in order. */
  pitchAt(seconds: number): number;
}

const SHORTEST_MS = 500;
const LOWEST_HERTZ = 220;
/** Semitones of two pentatonic octaves, in which no two notes sound wrong together. */
const SCALE = [0, 2, 4, 7, 9, 12, 14, 16, 19, 21];

/** How long a character takes to say, in milliseconds: a syllable in Chinese and Korean, about as long in Japanese. */
const LETTER_MS = 60;
const SYLLABLE_MS = 200;
const SYLLABLE = /[\p{Script=Han}\p{Script=Hangul}\p{Script=Hiragana}\p{Script=Katakana}]/u;

/** The melody of a text: 60 ms for each character (code point), 200 ms if it is a syllable; at least half a second. */
export function melodyOf(text: string): Melody {
  const characters = Array.from(text);
  const pitches = Float64Array.from(characters, pitchOf);
  let end = 0;
  const ends = Float64Array.from(characters, (character) => (end += durationOf(character)));
  let at = 0;
  return {
    seconds: Math.max(SHORTEST_MS, end) / 1000,
    pitchAt: (seconds) => {
      const ms = seconds * 1000;
      while (at > 0 && ms < (ends[at - 1] ?? 0)) at -= 1;
      while (at < ends.length && ms >= (ends[at] ?? 0)) at += 1;
      return pitches[at] ?? 0;
    },
  };
}

/** A tune of `seconds` in notes of a quarter of a second, which come from `random` (0 to 1). */
export function tuneOf(random: () => number, seconds: number): Melody {
  const notes = Array.from({ length: Math.ceil(seconds * 4) }, () =>
    noteOf(Math.floor(random() * SCALE.length)),
  );
  return { seconds, pitchAt: (moment) => notes[Math.floor(moment * 4)] ?? 0 };
}

function durationOf(character: string): number {
  return character > '\u1100' && SYLLABLE.test(character) ? SYLLABLE_MS : LETTER_MS;
}

function pitchOf(character: string): number {
  return /[\p{L}\p{N}]/u.test(character) ? noteOf(character.codePointAt(0) ?? 0) : 0;
}

function noteOf(number: number): number {
  return LOWEST_HERTZ * 2 ** ((SCALE[number % SCALE.length] ?? 0) / 12);
}
