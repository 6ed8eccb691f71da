const headBytes = 27;
const [beginning, end] = [2, 4];
const noPacketEnds = 0xffff_ffff_ffff_ffffn;

/**
 * A function that joins Ogg Opus files, given in order, to one logical stream (RFC 3533, RFC 7845): headers of the
 * first alone, pages numbered and timed through. One file after the other would play on, but every player would
 * take the length of the last for that of all. What is not understood is left as it is.
 */
export function oggJoiner(): (file: Uint8Array, isLast: boolean) => Uint8Array {
  let sequence = 0;
  let serial: number | undefined;
  /** Samples (48 kHz) up to the end of the file before. */
  let played = 0n;
  return (file, isLast) => {
    const pages = pagesOf(Buffer.from(file));
    const headers = pages === undefined ? 0 : headerCount(pages);
    if (pages === undefined || headers === 0) return file;
    serial ??= pages[0]?.readUInt32LE(14) ?? 0;
    const start = played;
    const kept = sequence === 0 ? pages : pages.slice(headers);
    for (const page of kept) {
      const granule = page.readBigUInt64LE(6);
      if (granule !== noPacketEnds) played = start + granule;
      const ends = isLast && page === kept.at(-1);
      page[5] = ((page[5] ?? 0) & ~(beginning | end)) | (sequence === 0 ? beginning : 0) | (ends ? end : 0);
      if (granule !== noPacketEnds) page.writeBigUInt64LE(played, 6);
      page.writeUInt32LE(serial, 14);
      page.writeUInt32LE(sequence++, 18);
      page.writeUInt32LE(0, 22);
      page.writeUInt32LE(checksum(page), 22);
    }
    return Buffer.concat(kept);
  };
}

function pagesOf(file: Buffer): Buffer[] | undefined {
  const pages: Buffer[] = [];
  for (let at = 0; at < file.length;) {
    if (file.toString('latin1', at, at + 4) !== 'OggS' || at + headBytes > file.length) return undefined;
    const segments = file.subarray(at + headBytes, at + headBytes + (file[at + 26] ?? 0));
    const next = at + headBytes + segments.length + segments.reduce((sum, size) => sum + size, 0);
    if (next > file.length) return undefined;
    // A page is changed in its place: each has bytes of its own.
    pages.push(Buffer.from(file.subarray(at, next)));
    at = next;
  }
  return pages;
}

// The page of OpusHead, and those up to the end of the comments' packet; none where this is no Opus.
function headerCount(pages: readonly Buffer[]): number {
  const [first] = pages;
  if (first?.toString('latin1', headBytes + 1, headBytes + 9) !== 'OpusHead') return 0;
  const last = pages.findIndex((page, index) => index > 0 && endsPacket(page));
  return last === -1 ? 0 : last + 1;
}

function endsPacket(page: Buffer): boolean {
  return page.subarray(headBytes, headBytes + (page[26] ?? 0)).some((size) => size < 255);
}

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte << 24;
  for (let bit = 0; bit < 8; bit += 1) value = (value << 1) ^ (value < 0 ? 0x04c1_1db7 : 0);
  return value;
});

function checksum(page: Buffer): number {
  let sum = 0;
  for (const byte of page) sum = (sum << 8) ^ (table[(sum >>> 24) ^ byte] ?? 0);
  return sum >>> 0;
}
