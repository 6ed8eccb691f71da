/** The length of {@link wavHeader}, bytes. */
export const wavHeaderBytes = 44;

const unknownLength = 0xffff_ffff;

/**
 * The header of a WAV file of signed 16-bit mono PCM. Where the length is not known yet (a stream), both size
 * fields hold 0xFFFFFFFF, which players read as "to the end".
 *
 * @param sampleRate hertz
 * @param audioBytes length of the PCM after it, bytes
 */
export function wavHeader(sampleRate: number, audioBytes?: number): Buffer {
  const header = Buffer.alloc(wavHeaderBytes);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(sizeField(audioBytes, wavHeaderBytes - 8), 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(sampleRate, 24);
  header.writeUInt32LE(sampleRate * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(sizeField(audioBytes, 0), 40);
  return header;
}

function sizeField(audioBytes: number | undefined, more: number): number {
  return audioBytes === undefined ? unknownLength : Math.min(audioBytes + more, unknownLength);
}
