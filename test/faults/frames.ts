/** Returns a frame of a speech stream (specification 2.6). */
export function frame(code: unknown, data: unknown, more: object = {}): string {
  return JSON.stringify({ code, message: code === 20_000_000 ? 'ok' : '', data, ...more });
}

/** The frame that ends a stream successfully. */
export const endFrame = frame(20_000_000, null, { usage: { text_words: 3 } });

/** Returns audio as frames of the given size, without the end frame. */
export function audioFrames(audio: Buffer, bytes = 700): string[] {
  const count = Math.ceil(audio.length / bytes);
  return Array.from({ length: count }, (_, index) =>
    frame(0, audio.subarray(index * bytes, (index + 1) * bytes).toString('base64')),
  );
}

/** Returns a complete stream for the audio, including the end frame. */
export function framesOf(audio: Buffer): string[] {
  return [...audioFrames(audio), endFrame];
}
