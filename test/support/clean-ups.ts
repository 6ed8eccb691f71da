const cleanUps: (() => Promise<void> | void)[] = [];

/** Registers a clean-up for the end of the test. The last one registered runs first. */
export function onEnd(cleanUp: () => Promise<void> | void): void {
  cleanUps.push(cleanUp);
}

/** Runs the clean-ups of {@link onEnd}. */
export async function cleanUp(): Promise<void> {
  for (const each of cleanUps.splice(0).reverse()) await each();
}
