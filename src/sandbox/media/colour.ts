/** One flat colour as `Y << 16 | Cb << 8 | Cr`, 8-bit BT.709 in studio range. */
export type Colour = number;

/** Packs three 8-bit components. */
export function packColour(y: number, cb: number, cr: number): Colour {
  return (y << 16) | (cb << 8) | cr;
}

/** The colour of a hue in degrees, with saturation and lightness in 0..1 (what lies outside is clamped). */
export function hslColour(hue: number, saturation: number, lightness: number): Colour {
  const light = Math.min(1, Math.max(0, lightness));
  const chroma = Math.min(1, Math.max(0, saturation)) * Math.min(light, 1 - light);
  const channel = (offset: number): number => {
    const k = (((offset + hue / 30) % 12) + 12) % 12;
    return light - chroma * Math.max(-1, Math.min(k - 3, 9 - k, 1));
  };
  return fromRgb(channel(0), channel(8), channel(4));
}

function fromRgb(red: number, green: number, blue: number): Colour {
  const luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  const cb = (blue - luma) / 1.8556;
  const cr = (red - luma) / 1.5748;
  return packColour(Math.round(16 + 219 * luma), Math.round(128 + 224 * cb), Math.round(128 + 224 * cr));
}
