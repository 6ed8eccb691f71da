/** The name that is nearest to what was typed, or undefined where none is near. */
export function nearest(typed: string, names: Iterable<string>): string | undefined {
  const most = Math.max(1, Math.floor(typed.length / 3));
  let best: { name: string; steps: number } | undefined;
  for (const name of names) {
    const steps = Math.abs(name.length - typed.length) > most ? Infinity : distance(typed, name);
    if (steps <= most && (best === undefined || steps < best.steps)) best = { name, steps };
  }
  return best?.name;
}

// Characters that are inserted, left out, changed, or swapped with the next one.
function distance(from: string, to: string): number {
  let [before, last] = [[] as number[], Array.from({ length: to.length + 1 }, (_, index) => index)];
  for (let row = 1; row <= from.length; row += 1) {
    const line = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const isSame = from[row - 1] === to[column - 1];
      const changed = (last[column - 1] ?? 0) + (isSame ? 0 : 1);
      const least = Math.min(changed, (last[column] ?? 0) + 1, (line[column - 1] ?? 0) + 1);
      const isSwap = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      line.push(isSwap ? Math.min(least, (before[column - 2] ?? 0) + 1) : least);
    }
    [before, last] = [last, line];
  }
  return last[to.length] ?? 0;
}
