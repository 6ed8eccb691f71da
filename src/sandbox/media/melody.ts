/** What a text sounds like: one short note for each character, none for what is not spoken. */
export interface Melody {
  /** How long it lasts, in seconds. */
  readonly seconds: number;
  /** The pitch at a moment, in hertz; 0 in a rest and after the end. */
  pitchAt(seconds: number): number;
}

const SECONDS_PER_CHARACTER = 0.06;
const SHORTEST_SECONDS = 0.5;
const LOWEST_HERTZ = 220;
/** Semitones of two pentatonic octaves, in which no two notes sound wrong together. */
const SCALE = [0, 2, 4, 7, 9, 12, 14, 16, 19, 21];

/** The melody of a text: 60 ms for each character (code point), at least half a second in all. */
export function melodyOf(text: string): Melody {
  const pitches = Float64Array.from(Array.from(text), pitchOf);
  return {
    seconds: Math.max(SHORTEST_SECONDS, pitches.length * SECONDS_PER_CHARACTER),
    pitchAt: (seconds) => pitches[Math.floor(seconds / SECONDS_PER_CHARACTER)] ?? 0,
  };
}

function pitchOf(character: string): number {
  if (!/[\p{L}\p{N}]/u.test(character)) return 0;
  const semitones = SCALE[(character.codePointAt(0) ?? 0) % SCALE.length] ?? 0;
  return LOWEST_HERTZ * 2 ** (semitones / 12);
}
