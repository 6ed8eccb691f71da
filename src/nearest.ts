/**
 * Returns the most similar name: one that differs only in letter case, `_`, `-` or white space, or by at most
 * `maxSlips` typing errors (up to three in a long name). Returns undefined if none is similar.
 */
export function nearestName(
  name: string,
  names: readonly string[],
  maxSlips = Math.min(3, Math.floor(name.length / 4)),
): string | undefined {
  const sameName = names.find((known) => normalizedName(known) === normalizedName(name));
  if (sameName !== undefined) return sameName;
  const candidates = names
    .filter((known) => Math.abs(known.length - name.length) <= maxSlips)
    .map((known) => ({ known, slips: slipsBetween(name.toLowerCase(), known.toLowerCase()) }))
    .filter(({ slips }) => slips <= maxSlips);
  return candidates.sort((one, other) => one.slips - other.slips)[0]?.known;
}

/**
 * Normalizes letter case, and removes `_`, `-` and white space, so that `model_version` and `ModelVersion` become
 * equal.
 */
export function normalizedName(name: string): string {
  return name.toLowerCase().replace(/[_\-\s]/g, '');
}

// Counts the missing, extra, wrong and swapped letters between two names (optimal string alignment).
function slipsBetween(one: string, other: string): number {
  let rowBefore: number[] = [];
  let rowAbove: number[] = Array.from({ length: other.length + 1 }, (_, column) => column);
  for (let row = 1; row <= one.length; row += 1) {
    const currentRow = [row];
    for (let column = 1; column <= other.length; column += 1) {
      const substitutionCost = one[row - 1] === other[column - 1] ? 0 : 1;
      const isSwapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      currentRow[column] = Math.min(
        (rowAbove[column] ?? 0) + 1,
        (currentRow[column - 1] ?? 0) + 1,
        (rowAbove[column - 1] ?? 0) + substitutionCost,
        isSwapped ? (rowBefore[column - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
      );
    }
    [rowBefore, rowAbove] = [rowAbove, currentRow];
  }
  return rowAbove[other.length] ?? 0;
}
