import { expect } from 'vitest';

// `toEqual` compares bytes one by one, as properties, which takes a second per megabyte.
expect.addEqualityTesters([
  (one: unknown, other: unknown) =>
    Buffer.isBuffer(one) && Buffer.isBuffer(other) ? one.equals(other) : undefined,
]);
