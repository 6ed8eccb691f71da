import { Buffer } from 'node:buffer';
import { crc32, deflateRawSync } from 'node:zlib';

// These archives contain no timestamps or user names, so the same files always produce the same bytes.

/**
 * Returns a tar archive (ustar).
 * @param entries `path` ends with a slash for a folder; `mode`, `owner` (root by default) and the target of a
 *   symbolic `link` are optional
 */
export function tar(entries) {
  const blocks = entries.flatMap(({ path, body = '', mode, owner = 0, link = '' }) => {
    const bytes = Buffer.from(body);
    const isFolder = path.endsWith('/');
    const header = Buffer.alloc(512);
    const octal = (value, at, width) => header.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at);
    for (const name of [path, link])
      if (name.length > 100) throw new Error(`${name} is too long for a tar archive`);
    header.write(path);
    octal(mode ?? (isFolder ? 0o755 : 0o644), 100, 8);
    octal(owner, 108, 8);
    octal(owner, 116, 8);
    octal(bytes.length, 124, 12);
    octal(0, 136, 12);
    header.write('        ', 148);
    header.write(isFolder ? '5' : link ? '2' : '0', 156);
    header.write(link, 157);
    header.write('ustar\x0000', 257, 'latin1');
    if (owner === 0) for (const at of [265, 297]) header.write('root', at);
    octal(
      header.reduce((sum, byte) => sum + byte, 0),
      148,
      7,
    );
    return [header, bytes, Buffer.alloc(-bytes.length & 511)];
  });
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

/** Returns an ar archive, the container format of .deb packages. */
export function ar(members) {
  const parts = members.flatMap(({ name, body }) => {
    const bytes = Buffer.from(body);
    const fields = [name.padEnd(16), '0'.padEnd(12), '0'.padEnd(6), '0'.padEnd(6), '100644'.padEnd(8)];
    const head = Buffer.from(`${fields.join('')}${String(bytes.length).padEnd(10)}\`\n`);
    return [head, bytes, Buffer.alloc(bytes.length & 1, '\n')];
  });
  return Buffer.concat([Buffer.from('!<arch>\n'), ...parts]);
}

/** Returns a zip archive with one file. */
export function zip(name, body) {
  const packed = deflateRawSync(body, { level: 9 });
  const common = Buffer.alloc(26);
  common.writeUInt16LE(20, 0);
  common.writeUInt16LE(8, 4);
  // 1980-01-01, the earliest date that the format supports.
  common.writeUInt16LE(0x21, 8);
  common.writeUInt32LE(crc32(body), 10);
  common.writeUInt32LE(packed.length, 14);
  common.writeUInt32LE(body.length, 18);
  common.writeUInt16LE(name.length, 22);
  const local = Buffer.concat([Buffer.from('PK\x03\x04', 'latin1'), common, Buffer.from(name), packed]);
  const tail = Buffer.alloc(14);
  const central = Buffer.concat([Buffer.from('PK\x01\x02\x14\0', 'latin1'), common, tail, Buffer.from(name)]);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(local.length, 16);
  return Buffer.concat([local, central, end]);
}
