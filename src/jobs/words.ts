const longestText = 4000;

/**
 * What a gateway said, as it may be kept and shown: the key taken out of every text in it (gateways quote the one
 * that they refuse), and no text longer than 4000 UTF-16 code units.
 */
export function keptWords<T>(said: T, redact: (text: string) => string): T {
  return kept(said, redact) as T;
}

function kept(said: unknown, redact: (text: string) => string): unknown {
  if (typeof said === 'string') return redact(said).slice(0, longestText);
  if (Array.isArray(said)) return said.map((each: unknown) => kept(each, redact));
  if (typeof said !== 'object' || said === null) return said;
  const members = Object.entries(said).map(([name, value]) => [redact(name), kept(value, redact)]);
  return Object.fromEntries(members);
}
