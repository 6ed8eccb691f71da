import { expect, it } from 'vitest';

import { hslColour, packColour } from '../../../src/sandbox/media/scene.ts';

it.each([
  ['black', 0, 0, 0, [16, 128, 128]],
  ['white', 0, 0, 1, [235, 128, 128]],
  ['red', 0, 1, 0.5, [63, 102, 240]],
  ['green', 120, 1, 0.5, [173, 42, 26]],
  ['blue', 240, 1, 0.5, [32, 240, 118]],
  ['red, with a hue of 360 degrees,', 360, 1, 0.5, [63, 102, 240]],
  ['blue, with a hue of -120 degrees,', -120, 1, 0.5, [32, 240, 118]],
  ['white, with a lightness above the maximum,', 200, 0.5, 1.4, [235, 128, 128]],
] as const)(
  'the colour %s is converted to the correct BT.709 components',
  (_, hue, saturation, lightness, [y, cb, cr]) => {
    expect(hslColour(hue, saturation, lightness)).toBe(packColour(y, cb, cr));
  },
);
