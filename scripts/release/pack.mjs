import { readFileSync, writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { constants, zstdCompress } from 'node:zlib';

// Writes each file that is named, compressed, next to it.
const params = { [constants.ZSTD_c_compressionLevel]: 15, [constants.ZSTD_c_enableLongDistanceMatching]: 1 };
await Promise.all(
  process.argv
    .slice(2)
    .map(async (file) =>
      writeFileSync(`${file}.zst`, await promisify(zstdCompress)(readFileSync(file), { params })),
    ),
);
