import { readSync } from 'node:fs';

/** An ID3v2 tag, which precedes an MP3's audio. */
export interface Id3Tag {
  /** The ID3v2 version: 2, 3 or 4. */
  version: number;
  /** File offsets: the start of the tag, the position for a new frame, and the end of the tag without its footer. */
  start: number;
  frameOffset: number;
  end: number;
  hasFooter: boolean;
  /**
   * Frame names of version 2 are converted to the names of later versions. Texts are truncated to 4 KiB, and omit the
   * zero bytes of UTF-16.
   */
  frames: { id: string; text: string }[];
  /** False if part of the tag cannot be read, or a checksum or restriction forbids an additional frame. */
  canGrow: boolean;
}

const headerBytes = 10;
// The maximum tag size to read, in bytes. A tag with a picture has a few MB.
const maxTagBytes = 16 * 1024 * 1024;
const maxTextBytes = 4096;
const [maxTags, maxFrames] = [8, 1000];
const unsynchronisedFlag = 0x80;
const footerFlag = 0x10;
const laterNames: Partial<Record<string, string>> = { GEO: 'GEOB', TXX: 'TXXX', COM: 'COMM' };

/**
 * Returns the ID3v2 tags at the beginning of a file (ID3v2.2 to 2.4). Reads at most 16 MiB of each tag.
 * @param file the file's descriptor, open for reading
 * @throws file system errors
 */
export function id3Tags(file: number): Id3Tag[] {
  const tags: Id3Tag[] = [];
  for (let at = 0; tags.length < maxTags;) {
    const tag = tagAt(file, at);
    if (tag === undefined) break;
    tags.push(tag);
    at = tag.end + (tag.hasFooter ? headerBytes : 0);
  }
  return tags;
}

function tagAt(file: number, start: number): Id3Tag | undefined {
  const head = bytesAt(file, start, headerBytes);
  const [version = 0, flags = 0] = [head[3], head[5]];
  if (head.length < headerBytes || head.toString('latin1', 0, 3) !== 'ID3') return undefined;
  const size = decodeSyncsafe(head, 6);
  const raw = bytesAt(file, start + headerBytes, Math.min(size, maxTagBytes));
  const extension = (flags & 0x40) === 0 ? { bytes: 0, canGrow: true } : extensionIn(raw, version);
  const body = raw.subarray(extension.bytes);
  // From version 4 on, a frame's size is the number of its bytes in the file.
  const isPadded = version < 4 && (flags & unsynchronisedFlag) !== 0;
  const { frames, bytes, isComplete } = framesIn(isPadded ? removeUnsynchronisation(body) : body, version);
  return {
    version,
    start,
    frameOffset: start + headerBytes + extension.bytes + (isPadded ? 0 : bytes),
    end: start + headerBytes + size,
    hasFooter: version === 4 && (flags & footerFlag) !== 0,
    frames,
    canGrow: extension.canGrow && isComplete && raw.length === size,
  };
}

// Reads the extended header. A checksum, or a restriction of the tag's size, forbids a change.
function extensionIn(body: Buffer, version: number): { bytes: number; canGrow: boolean } {
  if (body.length < headerBytes || version < 3) return { bytes: 0, canGrow: false };
  const bytes = version === 4 ? decodeSyncsafe(body, 0) : body.readUInt32BE(0) + 4;
  const isUnrestricted = version === 4 ? ((body[5] ?? 0) & 0x30) === 0 : ((body[4] ?? 0) & 0x80) === 0;
  const isInside = bytes >= 6 && bytes <= body.length;
  return { bytes, canGrow: isUnrestricted && isInside && !body.subarray(0, bytes).includes(0xff) };
}

function framesIn(
  body: Buffer,
  version: number,
): Pick<Id3Tag, 'frames'> & { bytes: number; isComplete: boolean } {
  const frames: Id3Tag['frames'] = [];
  const [idBytes, frameHeader] = version < 3 ? [3, 6] : [4, 10];
  for (let at = 0; ;) {
    const isPadding = body.length - at < frameHeader || body[at] === 0;
    if (isPadding) return { frames, bytes: at, isComplete: body.subarray(at).every((byte) => byte === 0) };
    const id = body.toString('latin1', at, at + idBytes);
    const size =
      version < 3
        ? body.readUIntBE(at + 3, 3)
        : version === 4
          ? decodeSyncsafe(body, at + 4)
          : body.readUInt32BE(at + 4);
    const start = at + frameHeader;
    if (!/^[A-Z0-9]+$/.test(id) || frames.length >= maxFrames || start + size > body.length)
      return { frames, bytes: at, isComplete: false };
    const text = body.toString('latin1', start, start + Math.min(size, maxTextBytes)).replaceAll('\0', '');
    frames.push({ id: laterNames[id] ?? id, text });
    at = start + size;
  }
}

// Removes the zero that unsynchronisation inserts after each 0xff byte.
function removeUnsynchronisation(body: Buffer): Buffer {
  return Buffer.from(body.toString('latin1').replaceAll('\xff\0', '\xff'), 'latin1');
}

function bytesAt(file: number, at: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  return bytes.subarray(0, readSync(file, bytes, 0, length, at));
}

// Decodes a number from the low seven bits of four bytes.
function decodeSyncsafe(bytes: Buffer, at: number): number {
  return bytes.subarray(at, at + 4).reduce((sum, byte) => sum * 128 + (byte & 0x7f), 0);
}

const maxSize = 0x0fff_ffff;

/**
 * Returns the edits that add a TXXX frame to a file, either to the file's first tag or in a new tag.
 * @returns undefined if the tag would be too long
 */
export function textFrameEdits(
  tag: Id3Tag | undefined,
  name: string,
  value: string,
): { at: number; replaced: number; bytes: Buffer }[] | undefined {
  const content = Buffer.from(`\0${name}\0${value}`, 'latin1');
  const version = tag?.version ?? 3;
  const header = Buffer.alloc(version < 3 ? 6 : 10);
  header.write(version < 3 ? 'TXX' : 'TXXX', 'latin1');
  if (version < 3) header.writeUIntBE(content.length, 3, 3);
  else if (version === 4) encodeSyncsafe(content.length).copy(header, 4);
  else header.writeUInt32BE(content.length, 4);
  const frame = Buffer.concat([header, content]);
  if (tag === undefined) {
    const head = Buffer.from([...Buffer.from('ID3'), 3, 0, 0]);
    return [{ at: 0, replaced: 0, bytes: Buffer.concat([head, encodeSyncsafe(frame.length), frame]) }];
  }
  const { start, frameOffset, end, hasFooter } = tag;
  const size = end - start - headerBytes + frame.length;
  if (size > maxSize) return undefined;
  const edits = [
    { at: start + 6, replaced: 4, bytes: encodeSyncsafe(size) },
    { at: frameOffset, replaced: 0, bytes: frame },
  ];
  return hasFooter ? [...edits, { at: end + 6, replaced: 4, bytes: encodeSyncsafe(size) }] : edits;
}

function encodeSyncsafe(size: number): Buffer {
  return Buffer.from([size >> 21, size >> 14, size >> 7, size].map((part) => part & 0x7f));
}
