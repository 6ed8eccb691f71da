import { createHash } from 'node:crypto';
import {
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  type BigIntStats,
} from 'node:fs';
import { join } from 'node:path';

/** A file, a folder or a link, without its names. */
export interface Inode {
  mode: number;
  /** A folder's content: names and their inodes. */
  names?: Record<string, string>;
  /** The target of a symbolic link. */
  link?: string;
  /** The content of files, by their hash. */
  content?: string;
}

/** Every inode below a folder, by its identity; the folder itself comes first. */
export type Tree = Record<string, Inode>;

/** The bytes behind the hashes of a tree. */
export type Contents = ReadonlyMap<string, Buffer>;

const empty = Buffer.alloc(0);

/** Reads a folder; `onContent` is called with the content of each file. */
export function treeOf(folder: string, onContent: (hash: string, bytes: Buffer) => void): Tree {
  const tree: Tree = {};
  const visit = (path: string): string => {
    const id = identityOf(lstatSync(path, { bigint: true }));
    if (tree[id] !== undefined) return id;
    const stat = lstatSync(path);
    const inode: Inode = { mode: stat.mode & 0o777 };
    tree[id] = inode;
    if (stat.isSymbolicLink()) inode.link = readlinkSync(path);
    else if (stat.isDirectory())
      inode.names = Object.fromEntries(
        readdirSync(path)
          .sort()
          .map((name) => [name, visit(join(path, name))]),
      );
    else {
      const bytes = readFileSync(path);
      inode.content = hashOf(bytes);
      onContent(inode.content, bytes);
    }
    return id;
  };
  visit(folder);
  return tree;
}

/** Identifies an inode, and distinguishes it from a later one with the same number. */
export function identityOf({ ino, birthtimeNs }: BigIntStats): string {
  return `${ino}.${birthtimeNs}`;
}

/** The hash of some bytes, by which their content is looked up. */
export function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 20);
}

/** The content at each path; equal for equal trees. */
export function listing(tree: Tree): Record<string, string> {
  const paths: Record<string, string> = {};
  const visit = (id: string, path: string): void => {
    const { names, link, content = '' } = tree[id] ?? { mode: 0 };
    paths[path] = link ?? (names === undefined ? content : 'a folder');
    for (const [name, child] of Object.entries(names ?? {})) visit(child, `${path}/${name}`);
  };
  visit(rootOf(tree), '');
  return paths;
}

/** Replaces a folder's content with a tree. */
export function restore(tree: Tree, contents: Contents, folder: string): void {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true, force: true });
  const made = new Map<string, string>();
  const make = (id: string, path: string): void => {
    const { mode, names, link, content = '' } = tree[id] ?? { mode: 0 };
    const first = made.get(id);
    made.set(id, path);
    if (first !== undefined) linkSync(first, path);
    else if (link !== undefined) symlinkSync(link, path);
    else if (names === undefined) writeFileSync(path, contents.get(content) ?? empty, { mode });
    else {
      mkdirSync(path, { mode, recursive: path === folder });
      for (const [name, child] of Object.entries(names)) make(child, join(path, name));
    }
  };
  make(rootOf(tree), folder);
}

/** The identity of the root folder of a tree. */
export function rootOf(tree: Tree): string {
  return Object.keys(tree)[0] ?? '';
}
