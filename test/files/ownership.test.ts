import { chmodSync, lchownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { folderFault, linkFault, ownerFault } from '../../src/files/make-folder.ts';

let folder: string;
const me = process.geteuid?.() ?? 0;
const stranger = me + 4000;
beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), 'mgw-owner-'))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

it('mgw trusts files created by the user or root', () => {
  expect(ownerFault({ uid: 1000 }, 1000)).toBeUndefined();
  expect(ownerFault({ uid: 0 }, 1000)).toBeUndefined();
  expect(ownerFault({ uid: 1001 }, 1000)).toBe('belongs to user 1001, and mgw runs as user 1000');
});

it('mgw does not trust other users, even if it runs as root', () => {
  expect(ownerFault({ uid: 1000 }, 0)).toBe('belongs to user 1000, and mgw runs as user 0');
});

it('mgw checks the owner of a link and the owner of its target', () => {
  const link = path.join(folder, 'link');
  mkdirSync(path.join(folder, 'inner'), { mode: 0o700 });
  symlinkSync(path.join(folder, 'inner'), link);
  expect(linkFault(link, me)).toBeUndefined();
  expect(linkFault(path.join(folder, 'inner'), stranger)).toBeUndefined();
  expect(linkFault(path.join(folder, 'nothing'), stranger)).toBeUndefined();
  expect(folderFault(link, me)).toBeUndefined();
});

it.runIf(me === 0)("mgw refuses another user's link to that user's folder", () => {
  const link = path.join(folder, 'link');
  symlinkSync(folder, link);
  lchownSync(link, stranger, stranger);
  expect(folderFault(link)).toBe(`is a link that belongs to user ${stranger}, and mgw runs as user 0`);
});

it.each([
  ['777', 'can be written by every user (mode 0777)'],
  ['1777', 'can be written by every user (mode 1777)'],
  ['702', 'can be written by every user (mode 0702)'],
  ['775', undefined],
  ['700', undefined],
])('a folder with mode %s is reported as unsafe: %s', (mode, fault) => {
  chmodSync(folder, Number.parseInt(mode, 8));
  expect(folderFault(folder, me)).toBe(fault);
});
