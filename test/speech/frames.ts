/** A speech stream as values: audio as bytes, other frames as objects, anything else as text. */
export type Frames = readonly (Buffer | object | string)[];

/** The end frame of specification 2.6. */
export const end = { code: 20000000, message: 'ok', data: null, usage: { text_words: 10 } };

/** Returns a stream as sent over the wire, with a newline after each frame. */
export function speechBody(frames: Frames): string {
  return frames.map((frame) => (typeof frame === 'string' ? frame : `${frameText(frame)}\n`)).join('');
}

/** Returns one frame as JSON. */
export function frameText(frame: Buffer | object): string {
  if (!Buffer.isBuffer(frame)) return JSON.stringify(frame);
  return JSON.stringify({ code: 0, message: '', data: frame.toString('base64') });
}
