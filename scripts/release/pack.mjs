import { readFileSync, writeFileSync } from 'node:fs';
import { constants, zstdCompressSync } from 'node:zlib';

// Writes each file that is named, compressed, next to it.
for (const file of process.argv.slice(2)) {
  const params = {
    [constants.ZSTD_c_compressionLevel]: 17,
    [constants.ZSTD_c_enableLongDistanceMatching]: 1,
  };
  writeFileSync(`${file}.zst`, zstdCompressSync(readFileSync(file), { params }));
}
