import fc from 'fast-check';
import { basename, dirname, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { numberedPath, pathsAt } from '../../src/jobs/output.ts';

const job = { id: 'job_1' };

describe('pathsAt', () => {
  it.each<[string, number, number | undefined, string[]]>([
    ['/x/clip.mp4', 1, undefined, ['/x/clip.mp4']],
    ['/x/clip.mp4', 2, undefined, ['/x/clip-1.mp4', '/x/clip-2.mp4']],
    ['/x/clip.mp4', 1, 2, ['/x/clip-1.mp4']],
    ['/x/clip.mp4', 3, 2, ['/x/clip-1.mp4', '/x/clip-2.mp4', '/x/clip-3.mp4']],
    ['/x/clip', 2, undefined, ['/x/clip-1', '/x/clip-2']],
    ['/x.y/.mp4', 2, undefined, ['/x.y/.mp4-1', '/x.y/.mp4-2']],
    ['/x/clip.mp4', 0, 1, []],
  ])('numbers the paths of %s for %i files (ordered: %s)', (path, count, asked, paths) => {
    expect(pathsAt({ kind: 'file', path }, job, count, asked)).toEqual(paths);
  });

  it('names the file in a folder after the job, and returns absolute paths', () => {
    expect(pathsAt({ kind: 'folder', path: 'out' }, job, 1)).toEqual([resolve('out', 'job_1.mp4')]);
  });

  it('gives every file its own name in the folder of the target, whatever the target is called', () => {
    const name = fc.string({ minLength: 1 }).filter((text) => !/[/\0]|^\.\.?$/.test(text));
    fc.assert(
      fc.property(name, fc.integer({ min: 1, max: 12 }), (text, count) => {
        const paths = pathsAt({ kind: 'file', path: `/x/${text}` }, job, count);
        expect(new Set(paths).size).toBe(count);
        for (const path of paths) expect(dirname(path)).toBe('/x');
      }),
    );
  });
});

it('a template that numbers files leaves a single file unnumbered', () => {
  expect(basename(numberedPath('/x/a.mp4', 0, 1))).toBe('a.mp4');
});
