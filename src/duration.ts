const units = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
] as const;

const form =
  /^(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?$/;
const longest = 365 * 86_400_000;

/**
 * Parses a duration such as `50ms`, `5s`, `20m`, `1h30m` or `1.5h`, and returns ms. Units must descend, each at most
 * once. A number without a unit is refused.
 * @throws Error whose message says what is allowed, without naming the flag.
 */
export function parseDuration(text: string): number {
  const parts = text.length > 64 ? null : form.exec(text);
  const ms = units.reduce((sum, [, unit], index) => sum + Number(parts?.[index + 1] ?? 0) * unit, 0);
  if (parts === null || text === '') throw new Error('a number with a unit, such as 50ms, 5s, 20m or 1h30m');
  if (ms < 1 || ms > longest) throw new Error('a duration from 1ms to 365d');
  return Math.round(ms);
}

/** Formats a duration in ms for {@link parseDuration}: `1h30m`, `5s`, `1s500ms`; `0s` for zero. */
export function formatDuration(ms: number): string {
  let rest = Math.max(0, Math.round(ms));
  const parts = units.map(([name, unit]) => {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    return count > 0 ? `${count}${name}` : '';
  });
  return parts.join('') || '0s';
}
