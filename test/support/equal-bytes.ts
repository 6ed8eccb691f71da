import { expect } from 'vitest';

// `toEqual` looks at bytes one by one, by name: a second for a megabyte.
expect.addEqualityTesters([
  (one: unknown, other: unknown) =>
    Buffer.isBuffer(one) && Buffer.isBuffer(other) ? one.equals(other) : undefined,
]);
