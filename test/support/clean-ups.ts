const cleanUps: (() => Promise<void> | void)[] = [];

/** Runs after the test, the last one first. */
export function onEnd(cleanUp: () => Promise<void> | void): void {
  cleanUps.push(cleanUp);
}

/** Runs the clean-ups of {@link onEnd}. */
export async function cleanUp(): Promise<void> {
  for (const each of cleanUps.splice(0).reverse()) await each();
}
