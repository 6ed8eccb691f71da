/** Returns the lowest CPU time of a few runs, in ms. Slower runs include the process's other work. */
export function costOf(act: () => unknown, runs = 3): number {
  let min = Number.POSITIVE_INFINITY;
  for (let run = 0; run < runs; run += 1) {
    const before = process.cpuUsage();
    act();
    const { user, system } = process.cpuUsage(before);
    min = Math.min(min, (user + system) / 1000);
  }
  return min;
}

// The minimum duration of a run, in ms. A shorter measurement would be mostly start-up time.
const min = 4;

/**
 * Whether the time to read text grows linearly: doubling the length must not take much more than twice the time. The
 * length is doubled from `from` to `to` UTF-16 code units. Quadratic work takes four times as long at each step. Two
 * such steps in a row reveal it long before it could hang the test.
 */
export function growsWithText(
  read: (text: string) => unknown,
  unit: Unit,
  from: number,
  to: number,
): boolean {
  let before = Number.POSITIVE_INFINITY;
  let steep = 0;
  for (let size = from; size <= to; size *= 2) {
    const text = fill(unit, size);
    const cost = costOf(() => read(text));
    steep = cost > min && cost > 3 * before ? steep + 1 : 0;
    if (steep === 2) return false;
    before = cost;
  }
  return true;
}

/** Text made hostile by repetition: `head`, then `pump` repeatedly, then `tail`. */
export interface Unit {
  head?: string;
  pump: string;
  tail?: string;
}

/** Returns hostile text of `size` UTF-16 code units. */
export function fill({ head = '', pump, tail = '' }: Unit, size: number): string {
  const room = Math.max(0, size - head.length - tail.length);
  return head + pump.repeat(Math.ceil(room / pump.length)).slice(0, room) + tail;
}
