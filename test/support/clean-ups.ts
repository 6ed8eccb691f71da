const cleanUps: (() => Promise<void> | void)[] = [];

/** Registers a clean-up for the end of the test. Clean-ups run in reverse order of registration. */
export function onEnd(cleanUp: () => Promise<void> | void): void {
  cleanUps.push(cleanUp);
}

/** Runs the clean-ups registered with {@link onEnd}. */
export async function cleanUp(): Promise<void> {
  for (const each of cleanUps.splice(0).reverse()) await each();
}
