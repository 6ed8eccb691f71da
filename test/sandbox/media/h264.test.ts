import fc from 'fast-check';
import { expect, it } from 'vitest';

import {
  encodeDifference,
  encodeIdr,
  pictureParameterSet,
  sequenceParameterSet,
} from '../../../src/sandbox/media/h264.ts';
import { decodeSlice, readParameters } from './read-h264.ts';
import type { Picture } from './read-h264.ts';

const COLUMNS = 5;
const PARAMETERS = readParameters(
  Buffer.from(sequenceParameterSet({ width: COLUMNS * 16, height: 64, fps: 24 })),
  Buffer.from(pictureParameterSet()),
);

const extreme = fc.constantFrom(0x000000, 0xffffff, 0xff00ff, 0x00ff00, 0x808080, 0x818180);
const picture = fc
  .uint8Array({ minLength: 20, maxLength: 20 })
  .chain((grain) =>
    fc
      .array(fc.oneof(extreme, fc.integer({ min: 0, max: 0xffffff })), { minLength: 1, maxLength: 20 })
      .map((palette) => Uint32Array.from(grain, (value) => palette[value % palette.length] ?? 0)),
  );

function components(colours: Uint32Array): Picture {
  return Array.from(colours, (colour) => [colour >>> 16, (colour >>> 8) & 0xff, colour & 0xff]);
}

it('the H.264 encoder reproduces every colour of a picture and of the next picture exactly', () => {
  const property = fc.property(picture, picture, (first, second) => {
    const idr = decodeSlice(Buffer.from(encodeIdr(first, COLUMNS, 0)), PARAMETERS, []);
    expect(idr.picture).toEqual(components(first));
    const difference = Buffer.from(encodeDifference(second, first, COLUMNS, 1));
    expect(decodeSlice(difference, PARAMETERS, idr.picture).picture).toEqual(components(second));
  });
  fc.assert(property, { numRuns: 300 });
});

it.each([2, 3, 8, 9, 10, 16, 17, 18, 127])(
  'the H.264 encoder reproduces pixels that alternate between two brightnesses %i apart',
  (step) => {
    const steps = Uint32Array.from(
      { length: 20 },
      (_, index) => (index % 2 === 0 ? 100 : 100 + step) * 0x10101,
    );
    const { picture: decoded } = decodeSlice(Buffer.from(encodeIdr(steps, COLUMNS, 0)), PARAMETERS, []);
    expect(decoded).toEqual(components(steps));
  },
);

it('the H.264 encoder writes no pixel data for an unchanged picture', () => {
  const still = new Uint32Array(20).fill(0x408040);
  const { coded, picture: decoded } = decodeSlice(
    Buffer.from(encodeDifference(still, still, COLUMNS, 1)),
    PARAMETERS,
    components(still),
  );
  expect(coded).toBe(0);
  expect(decoded).toEqual(components(still));
});
