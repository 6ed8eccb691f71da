import { expect, it } from 'vitest';
import { PushedBody } from '../../src/http/pushed-body.ts';

/** A source of one-byte chunks that goes on at once where it is resumed, as undici's parser does. */
function eager(body: PushedBody, count: number): { pauses: () => number } {
  let [next, pauses, isPaused, isGoing] = [0, 0, false, false];
  const source = {
    pause: (): void => {
      pauses += 1;
      isPaused = true;
    },
    resume: (): void => {
      isPaused = false;
      if (!isGoing) go();
    },
  };
  const go = (): void => {
    isGoing = true;
    while (!isPaused && next < count) body.push(Uint8Array.of((next += 1)), source);
    isGoing = false;
    if (next === count) body.end();
  };
  go();
  return { pauses: () => pauses };
}

async function taken(body: PushedBody): Promise<number[]> {
  const bytes: number[] = [];
  for await (const chunk of body) bytes.push(...chunk);
  return bytes;
}

it('gives all in order, and has a source wait that is ahead', async () => {
  const body = new PushedBody(4);
  const source = eager(body, 100);
  expect(source.pauses()).toBe(1);
  expect(await taken(body)).toEqual(Array.from({ length: 100 }, (_, index) => index + 1));
  expect(source.pauses()).toBeGreaterThan(50);
});

it('gives what was pushed before it broke', async () => {
  const body = new PushedBody(4);
  body.push(Uint8Array.of(1, 2), { pause: () => undefined, resume: () => undefined });
  body.end(new Error('reset'));
  const seen: number[] = [];
  const reading = (async () => {
    for await (const chunk of body) seen.push(...chunk);
  })();
  await expect(reading).rejects.toThrow('reset');
  expect(seen).toEqual([1, 2]);
});
