import { RangeEncoder } from './range-encoder.ts';

/** Opus always counts in samples of 48 kHz. */
export const OPUS_RATE = 48_000;
/** Samples in a packet: 20 ms. */
export const PACKET_SAMPLES = 960;

/** The first byte of each packet (RFC 6716 3.1): CELT alone, 4 kHz wide, 20 ms, mono, one frame. */
const FRAME_OF_4_KHZ = 0x98;
/** 20 ms of silence. */
const SILENCE = Uint8Array.of(FRAME_OF_4_KHZ, 0xff, 0xfe);

/**
 * How often, of 256, a band's energy is the one that is expected, by band: the even numbers of the table
 * `e_prob_model` in RFC 6716 for 20 ms without prediction from the frame before, as far as 4 kHz reach.
 */
const AS_EXPECTED = [22, 63, 74, 84, 92, 103, 96, 96, 101, 107, 113, 118, 125];
/** Less than this, and the decoder would expect another, shorter code for the energy of a band. */
const BITS_FOR_ENERGY = 15;
const HIGHEST_GAIN = 7;

/**
 * 20 ms that sound at a pitch in hertz (0 for silence) as a packet that stands for itself. It has hardly any bits for
 * the shape of the spectrum, so the decoder fills it with noise of the energy that is expected of a voice; its pitch
 * filter (RFC 6716 4.3.7.1) makes a tone of that.
 */
export function opusPacket(pitch: number): Uint8Array {
  if (pitch === 0) return SILENCE;
  const encoder = new RangeEncoder();
  encoder.bit(false, 15); // not silent
  writePitchFilter(encoder, Math.round(OPUS_RATE / pitch));
  encoder.bit(false, 3).bit(true, 3); // no transient; energies without prediction from the frame before
  let before = 0;
  for (const frequency of AS_EXPECTED) {
    before = encoder.bits;
    encoder.symbol(0, frequency * 128, 32_768);
  }
  const size = Math.ceil((before + BITS_FOR_ENERGY) / 8);
  return Uint8Array.of(FRAME_OF_4_KHZ, ...encoder.finish(size));
}

/** RFC 6716 4.3.7.1; `period` in samples, 15 to 1022. */
function writePitchFilter(encoder: RangeEncoder, period: number): void {
  const octave = Math.floor(Math.log2((period + 1) / 16));
  encoder.bit(true, 1).symbol(octave, octave + 1, 6);
  encoder.raw(period + 1 - 16 * 2 ** octave, 4 + octave).raw(HIGHEST_GAIN, 3);
  encoder.symbol(0, 2, 4); // its narrowest form
}
