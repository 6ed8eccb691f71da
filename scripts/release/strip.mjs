import { Buffer } from 'node:buffer';

const [programHeaders, sectionHeaders] = [32, 40];

/**
 * Returns a 64-bit ELF file that contains only the segments its program headers load, without symbols and sections.
 * This saves 33 MB, but Node's functions lose their names in a debugger. Uses no external tool, so every machine
 * produces the same bytes for every processor.
 */
export function stripped(elf) {
  if (elf.toString('latin1', 0, 6) !== '\x7fELF\x02\x01')
    throw new Error('not a little-endian ELF file of 64 bits');
  const start = Number(elf.readBigUInt64LE(programHeaders));
  const [size, count] = [elf.readUInt16LE(54), elf.readUInt16LE(56)];
  const ends = Array.from({ length: count }, (_, index) => {
    const header = start + index * size;
    return Number(elf.readBigUInt64LE(header + 8) + elf.readBigUInt64LE(header + 32));
  });
  const result = Buffer.from(elf.subarray(0, Math.max(...ends)));
  result.writeBigUInt64LE(0n, sectionHeaders);
  // Sets the number of sections and the index of the section name table to 0.
  result.writeUInt32LE(0, 60);
  return result;
}
