import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { OutputLock } from '../../src/files/output-lock.ts';
import { markedCopy } from '../../src/jobs/mark.ts';
import { provenanceOf } from '../../src/jobs/receipt.ts';
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

// The boxes come before the index, whose offsets then lead astray: for what decodes, they come at the end.
const withFirst = (first: Buffer): Buffer =>
  Buffer.concat([clip.subarray(0, ftypEnd), first, clip.subarray(ftypEnd)]);

const claimant = {
  owner: { pid: 1, start: '', host: '' },
  assertLease: () => undefined,
  lifeOf: () => Promise.resolve('dead' as const),
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

it('adds the mark at the end, and nothing to a file that has it', async () => {
  expect(made.subarray(0, clip.length).equals(clip)).toBe(true);
  expect(made.subarray(clip.length).toString()).toContain(term);
  expect(await marked(made)).toMatchObject({ notes: [] });
  expect((await marked(made)).bytes).toBeUndefined();
});

it('merges the mark into XMP that is there, and moves nothing', async () => {
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
  ['of which the XMP names another source', withFirst(packet('<a:DigitalSourceType/>')), 'cannot be merged'],
  ['with two packets', Buffer.concat([clip, tool, tool]), 'cannot be merged'],
  ['of which the last box is open', Buffer.concat([clip, Buffer.from('\0\0\0\0free')]), 'no size'],
  ['that is a WAV', Buffer.from('RIFF\0\0\0\0WAVEfmt '), 'no MP4'],
])('leaves a file as it is %s', async (_, bytes, why) => {
  const { bytes: none, notes } = await marked(bytes);
  expect([none, notes]).toEqual([undefined, [expect.stringContaining(why)]]);
});

it.runIf(hasFfmpeg)('ffmpeg decodes a marked file without a warning', async () => {
  const { bytes: merged = Buffer.alloc(0) } = await marked(Buffer.concat([clip, tool]));
  for (const each of [made, merged]) expect(ffmpeg(each, [], ['-f', 'null']).complaints).toBe('');
});

it.runIf(hasExiftool)('exiftool reads the mark, and what was there before', async () => {
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
