import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { OutputLock } from '../../src/files/output-lock.ts';
import { markedCopy } from '../../src/jobs/mark.ts';
import { provenanceOf } from '../../src/jobs/receipt.ts';
import { renderSpeech } from '../../src/sandbox/media/speech.ts';
import { renderVideo } from '../../src/sandbox/media/video.ts';
import { ffmpeg, hasFfmpeg } from '../sandbox/media/ffmpeg.ts';
import { box } from '../support/film.ts';
import { freshFolder } from '../support/servers.ts';

const hasExiftool = spawnSync('exiftool', ['-ver']).status === 0;
const term = 'http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia';
const clip = Buffer.from(renderVideo({ prompt: 'a boat', seconds: 1, width: 96, height: 64, audio: true }));
const xmpId = Buffer.from('be7acfcb97a942e89c71999491e3afac', 'hex');
const c2pa = box(
  'uuid',
  Buffer.concat([Buffer.from('d8fec3d61b0e483c92975828877ec481', 'hex'), Buffer.alloc(40)]),
);
const packet = (inner: string): Buffer => {
  const rdf = `<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">${inner}</rdf:RDF>`;
  return box(
    'uuid',
    Buffer.concat([xmpId, Buffer.from(`<x:xmpmeta xmlns:x="adobe:ns:meta/">${rdf}</x:xmpmeta>`)]),
  );
};
const tool = packet(
  '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:CreatorTool="boat maker"/>',
);
const ftypEnd = clip.readUInt32BE(0);

// Inserts boxes before the index. The index's offsets are then wrong, so tests that decode the file append the boxes
// instead.
const withFirst = (first: Buffer): Buffer =>
  Buffer.concat([clip.subarray(0, ftypEnd), first, clip.subarray(ftypEnd)]);

const claimant = {
  owner: { pid: 1, start: '', host: '' },
  assertLease: () => undefined,
  lifeOf: () => Promise.resolve('dead' as const),
};

const speech = Buffer.from(renderSpeech({ text: 'a boat', format: 'mp3', sampleRate: 24_000 }));

function frame(id: string, content: string): Buffer {
  const head = Buffer.alloc(id.length === 3 ? 6 : 10);
  head.write(id);
  head.writeUIntBE(content.length, id.length, id.length === 3 ? 3 : 4);
  return Buffer.concat([head, Buffer.from(content, 'latin1')]);
}

function tag(version: number, content: Buffer, flags = 0): Buffer {
  const size = [content.length >> 7, content.length & 0x7f];
  const ends = ['ID3', '3DI'].map((name) =>
    Buffer.concat([Buffer.from(name), Buffer.from([version, 0, flags, 0, 0, ...size])]),
  );
  const [head = Buffer.alloc(0), foot = Buffer.alloc(0)] = ends;
  return Buffer.concat([head, content, ...(flags === 0x10 ? [foot] : []), speech]);
}

const title = (version: number): Buffer => frame(version < 3 ? 'TT2' : 'TIT2', '\0a boat');
const manifest = frame('GEOB', `\0application/x-c2pa-manifest-store\0\0c2pa\0${'.'.repeat(200)}`);
// The size of an ID3v2.3 frame does not include the zeros that unsynchronisation inserts after each 0xff.
const privately = frame('PRIV', `boat\0${'\xff\0'.repeat(50)}`);
const padded = Buffer.from(
  Buffer.concat([privately, title(3), manifest])
    .toString('latin1')
    .replaceAll('\xff', '\xff\0'),
  'latin1',
);
const checksum = Buffer.from([0, 0, 0, 10, 0x80, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
const other = frame('TXXX', '\0DigitalSourceType\0digitalCapture');
const tagged = {
  'has no tag': speech,
  'has a tag of version 2': tag(2, title(2)),
  'has a tag of version 3 with padding': tag(3, Buffer.concat([title(3), Buffer.alloc(50)])),
  'has a tag of version 4 with a footer': tag(4, title(4), 0x10),
  'has a different text frame': tag(3, Buffer.concat([title(3), frame('TXXX', '\0boat\0paper')])),
  'has unsynchronised frames': tag(3, padded.subarray(0, padded.indexOf('GEOB')), 0x80),
};

async function marked(bytes: Buffer): Promise<{ bytes?: Buffer; notes: string[]; path: string }> {
  const folder = freshFolder();
  const path = join(folder, 'boat.mp4.part');
  writeFileSync(path, bytes);
  const notes: string[] = [];
  const lock = new OutputLock(join(folder, 'boat.mp4'), claimant);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const version = { dev: 0n, ino: 0n, size: 0n, mtimeNs: 0n };
  const part = { path, bytes: bytes.length, sha256, version };
  const copy = await markedCopy(part, lock, (text) => notes.push(text));
  expect(readFileSync(path).equals(bytes)).toBe(true);
  if (copy === undefined) return { notes, path };
  const made = readFileSync(copy.path);
  expect(copy).toMatchObject({ bytes: made.length, sha256: createHash('sha256').update(made).digest('hex') });
  return { bytes: made, notes, path: copy.path };
}

const made = (await marked(clip)).bytes ?? Buffer.alloc(0);

it('--mark appends the mark to a file, unless the file contains one', async () => {
  expect(made.subarray(0, clip.length).equals(clip)).toBe(true);
  expect(made.subarray(clip.length).toString()).toContain(term);
  expect(await marked(made)).toMatchObject({ notes: [] });
  expect((await marked(made)).bytes).toBeUndefined();
});

it('--mark merges the mark into existing XMP without moving other data', async () => {
  for (const bytes of [withFirst(tool), Buffer.concat([clip, tool])]) {
    const { bytes: merged = Buffer.alloc(0), path } = await marked(bytes);
    const at = bytes.indexOf(xmpId) - 4;
    expect(merged.toString('latin1', at, at + 4)).toBe('free');
    merged.write('uuid', at);
    expect(merged.subarray(0, bytes.length).equals(bytes)).toBe(true);
    expect(merged.subarray(bytes.length).toString()).toMatch(/boat maker[^]*trainedAlgorithmicMedia/);
    expect(provenanceOf(path)).toEqual({ provenance: ['xmp'] });
  }
});

it.each([
  ['with a C2PA manifest', withFirst(c2pa), 'C2PA manifest'],
  ['whose XMP specifies another source', withFirst(packet('<a:DigitalSourceType/>')), 'cannot be merged'],
  ['with two XMP packets', Buffer.concat([clip, tool, tool]), 'cannot be merged'],
  ['whose last box has no size', Buffer.concat([clip, Buffer.from('\0\0\0\0free')]), 'no size'],
  ['that is a WAV', Buffer.from('RIFF\0\0\0\0WAVEfmt '), 'neither an MP4 nor an MP3'],
  ['that is an MP3 with a C2PA manifest', tag(3, manifest), 'C2PA manifest'],
  [
    'with a manifest in its second tag',
    Buffer.concat([tag(3, title(3)).subarray(0, -speech.length), tag(3, manifest)]),
    'C2PA manifest',
  ],
  ['with a manifest behind unsynchronised bytes', tag(3, padded, 0x80), 'C2PA manifest'],
  ['whose tag is truncated', tag(3, title(3)).subarray(0, 15), 'cannot be merged'],
  ['whose tag has a checksum', tag(3, Buffer.concat([checksum, title(3)]), 0x40), 'cannot be merged'],
  ['whose tag specifies another source', tag(3, other), 'cannot be merged'],
])('--mark does not change a file %s', async (_, bytes, why) => {
  const { bytes: none, notes } = await marked(bytes);
  expect([none, notes]).toEqual([undefined, [expect.stringContaining(why)]]);
});

it.each(Object.entries(tagged))(
  '--mark adds one frame to an MP3 that %s, even if it is used twice',
  async (_, source) => {
    const { bytes: made = Buffer.alloc(0), notes } = await marked(source);
    expect(notes).toEqual([]);
    expect(made.subarray(-speech.length).equals(speech)).toBe(true);
    expect(made.toString('latin1').split(term)).toHaveLength(2);
    expect(await marked(made)).toMatchObject({ notes: [] });
    expect((await marked(made)).bytes).toBeUndefined();
  },
);

it.runIf(hasExiftool && hasFfmpeg)(
  'the mark that --mark adds to an MP3 is readable by other programs, and nothing else changes',
  async () => {
    const copies = await Promise.all(Object.values(tagged).map(marked));
    const args = ['-j', '-UserDefinedText', '-Title', ...copies.map(({ path }) => path)];
    const mark = { UserDefinedText: `(DigitalSourceType) ${term}` };
    const found = JSON.parse(execFileSync('exiftool', args, { encoding: 'utf8' })) as object[];
    expect(found).toMatchObject([mark, ...found.slice(1).map(() => ({ ...mark, Title: 'a boat' }))]);
    const decoded = [speech, ...copies.map(({ bytes = Buffer.alloc(0) }) => bytes)].map((each) => {
      const { complaints, output } = ffmpeg(each, [], ['-f', 'md5']);
      return [complaints.replaceAll(/0x[0-9a-f]+/g, ''), output.toString()];
    });
    expect(new Set(decoded.map(String)).size).toBe(1);
  },
);

it.runIf(hasFfmpeg)('ffmpeg decodes a file marked with --mark without a warning', async () => {
  const { bytes: merged = Buffer.alloc(0) } = await marked(Buffer.concat([clip, tool]));
  for (const each of [made, merged]) expect(ffmpeg(each, [], ['-f', 'null']).complaints).toBe('');
});

it.runIf(hasExiftool)('exiftool reads the mark that --mark adds, and the existing metadata', async () => {
  for (const [bytes, creator] of [
    [clip, undefined],
    [Buffer.concat([clip, tool]), 'boat maker'],
  ] as const) {
    const { path } = await marked(bytes);
    const text = execFileSync('exiftool', ['-j', '-n', '-XMP:all', path], { encoding: 'utf8' });
    expect(JSON.parse(text)).toMatchObject([
      { DigitalSourceType: term, ...(creator && { CreatorTool: creator }) },
    ]);
  }
});
