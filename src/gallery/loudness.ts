/** Into how many parts a sound is divided. */
export const parts = 96;

/**
 * How loud each of equal parts of a sound is, as a digit from 0 to 9, the loudest being 9. `floor` is the loudness of what
 * counts as silence, in the samples' own unit.
 */
export function loudness(samples: Int16Array | Float32Array, floor: number): string {
  const length = Math.max(1, Math.floor(samples.length / parts));
  const loudest = Array.from({ length: parts }, (_, part) => {
    let most = 0;
    for (const sample of samples.subarray(part * length, (part + 1) * length))
      most = Math.max(most, Math.abs(sample));
    return most;
  });
  const most = Math.max(...loudest, floor);
  return loudest.map((value) => Math.round((9 * value) / most)).join('');
}
