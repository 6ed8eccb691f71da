import type { AssetKind, Flag } from './protocol.ts';

type Define = (flags: string, field: string, description: string, options?: Partial<Flag>) => Flag;

/** Defines a flag with one value, by default non-empty text. */
export const valueFlag: Define = (flags, field, description, options) => {
  return { flags, field, description, kind: 'text', parse: text, ...options };
};

/** Defines a flag that may be repeated. Each value is parsed separately. */
export const listFlag: Define = (flags, field, description, options) => {
  return valueFlag(flags, field, description, { kind: 'list', ...options });
};

/** Defines a flag that also has a `--no-` form. */
export const switchFlag: Define = (flags, field, description, options) => {
  return { flags, field, description, kind: 'switch', ...options };
};

/*
 * Parsers for flag values. Each parser receives the value from the command line, and throws an Error whose message
 * states the allowed values without naming the flag. The parsers are strict: no white space, no `1e3`, no leading zeros
 * or `+`.
 */

/** Parses a whole number of any sign that a double represents exactly. */
export function wholeNumber(value: string | boolean): number {
  const number = /^(0|-?[1-9]\d*)$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(number)) throw new Error('a whole number in digits, such as 5');
  return number;
}

/** Parses a decimal number of any sign, written in plain digits: `5`, `-1.25`. */
export function decimalNumber(value: string | boolean): number {
  const number = /^-?(0|[1-9]\d*)(\.\d+)?$/.test(String(value)) ? Number(value) : Number.NaN;
  if (!Number.isFinite(number)) throw new Error('a number in digits, such as 5');
  return number;
}

/** Returns text unchanged, and refuses blank text. */
export function text(value: string | boolean): string {
  if (typeof value !== 'string' || value.trim() === '') throw new Error('non-empty text');
  return value;
}

/** Returns a parser that accepts one of the words, spelled exactly. */
export function oneOf(...words: readonly string[]): (value: string | boolean) => string {
  return (value) => {
    if (typeof value !== 'string' || !words.includes(value)) throw new Error(words.join(', '));
    return value;
  };
}

/** The maximum sizes of assets, in bytes (specification 8). */
export const maxAssetBytes = { image: 20 * 1024 * 1024, audio: 50 * 1024 * 1024 } as const;

/** Returns the kind of asset that a flag accepts, according to the flag's name. */
export function assetKind(flag: string): AssetKind {
  if (/audio/.test(flag)) return 'audio';
  return /video/.test(flag) ? 'video' : 'image';
}

const starts = (from: number, value: string) => (head: Buffer) =>
  head.toString('latin1', from, from + value.length) === value;
const brand =
  (...names: string[]) =>
  (head: Buffer) =>
    starts(4, 'ftyp')(head) && names.includes(head.toString('latin1', 8, 12));

// The first bytes of each image type.
const signatures: [mime: string, begins: (head: Buffer) => boolean][] = [
  ['image/png', starts(0, '\x89PNG\r\n\x1a\n')],
  ['image/jpeg', starts(0, '\xff\xd8\xff')],
  ['image/webp', (head) => starts(0, 'RIFF')(head) && starts(8, 'WEBP')(head)],
  ['image/gif', (head) => starts(0, 'GIF87a')(head) || starts(0, 'GIF89a')(head)],
  ['image/bmp', (head) => starts(0, 'BM')(head) && head.length > 26 && head.readUInt32LE(6) === 0],
  ['image/heic', brand('heic', 'heix', 'heim', 'heis')],
  ['image/heif', brand('mif1', 'msf1')],
  ['image/avif', brand('avif', 'avis')],
];

// The first bytes of other file types. A video container may hold only audio.
const otherSignatures: typeof signatures = [
  ['audio/mpeg', (head) => starts(0, 'ID3')(head) || /^\xff[\xfb\xf3\xf2]/.test(head.toString('latin1'))],
  ['audio/wav', (head) => starts(0, 'RIFF')(head) && starts(8, 'WAVE')(head)],
  ['audio/flac', starts(0, 'fLaC')],
  ['video/ogg', starts(0, 'OggS')],
  [
    'video/mp4',
    brand('isom', 'iso2', 'iso4', 'iso5', 'iso6', 'mp41', 'mp42', 'avc1', 'M4V ', 'M4A ', 'qt  '),
  ],
  ['video/webm', starts(0, '\x1a\x45\xdf\xa3')],
  ['application/pdf', starts(0, '%PDF-')],
  ['application/zip', starts(0, 'PK\x03\x04')],
];

/** The MIME types of the image formats that mgw recognizes. */
export const imageTypes = signatures.map(([mime]) => mime);

/** Returns the MIME type of an image from its first 64 bytes; undefined if it is unknown. */
export function imageType(head: Uint8Array): string | undefined {
  return typeIn(signatures, head);
}

function typeIn(known: typeof signatures, head: Uint8Array): string | undefined {
  const bytes = Buffer.from(head.buffer, head.byteOffset, Math.min(head.byteLength, 64));
  return known.find(([, begins]) => begins(bytes))?.[0];
}

// Whether a file is plain text. An image in a text format, such as SVG, is not.
function isPlainText(bytes: Uint8Array): boolean {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, 1024)).toString('utf8');
  // The last character may be truncated.
  const text = bytes.length > 1024 ? head.replace(/\ufffd{1,3}$/, '') : head;
  return !/[^\P{Cc}\t\n\r\f]|\ufffd/u.test(text) && !/<svg|^P[1-3]\s|XPM/.test(text);
}

/** Returns the MIME type of a file that cannot be an asset of the given kind; undefined if the file may be an asset. */
export function deniedAsset(bytes: Uint8Array, kind: AssetKind): string | undefined {
  const type =
    typeIn([...signatures, ...otherSignatures], bytes) ?? (isPlainText(bytes) ? 'text/plain' : undefined);
  if (type === undefined || type.startsWith(`${kind}/`)) return undefined;
  // A video container may hold only audio, and an animated image may be accepted as a video.
  const isPossible = kind === 'audio' ? type.startsWith('video/') : kind === 'video' && type === 'image/gif';
  return isPossible ? undefined : type;
}
