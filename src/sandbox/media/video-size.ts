/** Pixels of a picture, both even. */
export interface VideoSize {
  width: number;
  height: number;
}

const SHORT_SIDES_OF_K: Readonly<Record<string, number>> = { '2k': 1440, '4k': 2160 };
const DEFAULT_SHORT_SIDE = 720;
const DEFAULT_RATIO = [16, 9] as const;
const LARGEST_SHORT_SIDE = 2160;
/** Beyond this a "ratio" is a typing error, and the picture would have no sensible size. */
const STEEPEST_RATIO = 4;

/**
 * The size for a resolution and an aspect ratio as requests spell them (specification 2.1, 2.3, 2.5): `720p`,
 * `768P`, `2K` … in either letter case name the short side (2K is 1440), `W:H` the ratio. A resolution that is
 * unknown counts as 720p; a ratio that is unknown, or `adaptive`, as 16:9.
 */
export function videoSize(resolution: string, aspectRatio: string): VideoSize {
  const short = shortSide(resolution.trim().toLowerCase());
  const [across, down] = ratioOf(aspectRatio.trim());
  return across >= down
    ? { width: even((short * across) / down), height: even(short) }
    : { width: even(short), height: even((short * down) / across) };
}

function shortSide(resolution: string): number {
  const lines = SHORT_SIDES_OF_K[resolution] ?? Number(/^(\d+)p$/.exec(resolution)?.[1]);
  return lines >= 2 && lines <= LARGEST_SHORT_SIDE ? lines : DEFAULT_SHORT_SIDE;
}

function ratioOf(aspectRatio: string): readonly [number, number] {
  const match = /^(\d+):(\d+)$/.exec(aspectRatio);
  const [across, down] = [Number(match?.[1]), Number(match?.[2])];
  const steepness = Math.max(across / down, down / across);
  return steepness <= STEEPEST_RATIO ? [across, down] : DEFAULT_RATIO;
}

function even(pixels: number): number {
  return 2 * Math.round(pixels / 2);
}
