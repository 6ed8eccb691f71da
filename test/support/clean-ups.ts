const cleanUps: (() => Promise<void> | void)[] = [];

/** Runs after the test, the last one first. */
export function onEnd(cleanUp: () => Promise<void> | void): void {
  cleanUps.push(cleanUp);
}

/** Runs what {@link onEnd} was told. */
export async function cleanUp(): Promise<void> {
  for (const each of cleanUps.splice(0).reverse()) await each();
}
