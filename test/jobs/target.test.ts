import fc from 'fast-check';
import { mkdirSync, symlinkSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  isSameOutput,
  numberedPath,
  outputPlace,
  pathsAt,
  pieceName,
  visibleFiles,
} from '../../src/jobs/output.ts';
import type { JobEvent } from '../../src/job.ts';
import { openFileLedger } from '../../src/ledger/file-ledger.ts';
import { freshFolder } from '../support/servers.ts';

describe('pathsAt', () => {
  it.each<[string, number, number | undefined, string[]]>([
    ['/x/clip.mp4', 1, undefined, ['/x/clip.mp4']],
    ['/x/v{n}/clip.mp4', 1, undefined, ['/x/v1/clip.mp4']],
    ['/x/clip.mp4', 2, undefined, ['/x/clip-1.mp4', '/x/clip-2.mp4']],
    ['/x/clip.mp4', 1, 2, ['/x/clip-1.mp4']],
    ['/x/clip.mp4', 3, 2, ['/x/clip-1.mp4', '/x/clip-2.mp4', '/x/clip-3.mp4']],
    ['/x/clip', 2, undefined, ['/x/clip-1', '/x/clip-2']],
    ['/x.y/.mp4', 2, undefined, ['/x.y/.mp4-1', '/x.y/.mp4-2']],
    ['/x/clip.mp4', 0, 1, []],
  ])(
    'numbers the file names if several files exist or were requested: %s, %i existing, %s requested',
    (path, count, asked, paths) => {
      expect(pathsAt(path, count, asked)).toEqual(paths);
    },
  );

  it('returns absolute paths', () => {
    expect(pathsAt('a.mp4', 1)).toEqual([resolve('a.mp4')]);
  });

  it("gives every file a unique name in the target's folder, for any target name", () => {
    const name = fc.string({ minLength: 1 }).filter((text) => !/[/\0]|^\.\.?$/.test(text));
    fc.assert(
      fc.property(name, fc.integer({ min: 1, max: 12 }), (text, count) => {
        const paths = pathsAt(`/x/${text}`, count);
        expect(new Set(paths).size).toBe(count);
        for (const path of paths) expect(dirname(path)).toBe('/x');
      }),
    );
  });
});

it('an output template whose path begins with ~ is refused', () => {
  expect(() => outputPlace('~/{id}.mp4')).toThrow('must be a path without ~');
  expect(outputPlace('./~/{id}.mp4').template).toBe('{id}.mp4');
});

it('an output template that is a URL of another kind is refused', () => {
  expect(() => outputPlace('gs://bucket/{id}.mp4')).toThrow('must be a path or s3://BUCKET/KEY');
  expect(() => outputPlace('s3://Bucket/{id}.mp4')).toThrow('"Bucket" is not a bucket name');
});

it('the name of a single file is not numbered', () => {
  expect(basename(numberedPath('/x/a.mp4', 0, 1))).toBe('a.mp4');
});

it.each<[string, string, boolean]>([
  ['real/a.mp4', 'link/a.mp4', true],
  ['real/new/{id}/a.mp4', 'link/new/{id}/a.mp4', true],
  ['real/a.mp4', 'other/a.mp4', false],
  ['real/a.mp4', 'link/b.mp4', false],
  ['link', 'real', false],
])(
  'two outputs are the same if they are equal after symbolic links in their folders are resolved (%s and %s: %s)',
  (one, other, isSame) => {
    const folder = freshFolder();
    mkdirSync(join(folder, 'real'));
    symlinkSync('real', join(folder, 'link'));
    expect(isSameOutput(join(folder, one), join(folder, other))).toBe(isSame);
  },
);

it.each([
  ['s3://media/a.mp4', 's3://media/b/../a.mp4'],
  ['-', resolve('-')],
])('the outputs %s and %s are compared as text', (one, other) => {
  expect([isSameOutput(one, other), isSameOutput(one, one)]).toEqual([false, true]);
});

it('only pieces of long text are hidden, not files in a folder with a similar name', async () => {
  const fingerprint = 'abcdef0123456789'.repeat(4);
  const ledger = await openFileLedger(freshFolder(), () => 0);
  const variant = pieceName(12_345, fingerprint);
  const paths = ['/book.mp3.pieces/', '/state/speech/0123/'].flatMap((piecesFolder) =>
    [variant, 'v.mp3', `x-${variant}`].map((name) => piecesFolder + name),
  );
  const files = paths.map((path): JobEvent => ({ type: 'file', file: { path, bytes: 1, sha256: '' } }));
  const shown = async (protocol: string): Promise<string[]> => {
    const id = await ledger.newId(0);
    const prepared: JobEvent = {
      type: 'prepared',
      protocol,
      base_url: 'g',
      fingerprint,
      variant,
      account: '',
    };
    await ledger.create(id, [prepared, ...files]);
    const job = await ledger.read(id);
    return job === undefined ? [] : visibleFiles(job).map(({ path }) => path);
  };
  expect(await shown('c')).toEqual(paths);
  expect(await shown('tts')).toEqual(paths.filter((_, index) => index % 3 > 0));
});
