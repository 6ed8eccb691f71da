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

/** A file, a folder or a symbolic link, without the names that refer to it. */
export interface Inode {
  mode: number;
  /** A folder's content: each name with its inode's identity. */
  names?: Record<string, string>;
  /** A symbolic link's target. */
  link?: string;
  /** The hash of a file's content. */
  content?: string;
}

/** Every inode below a folder, by identity. The folder itself comes first. */
export type Tree = Record<string, Inode>;

/** The file contents that a tree's hashes refer to. */
export type Contents = ReadonlyMap<string, Buffer>;

const empty = Buffer.alloc(0);

/** Reads a folder as a tree, and calls `onContent` with each file's hash and content. */
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

/** Returns an inode's identity, which differs from that of a later inode with the same number. */
export function identityOf({ ino, birthtimeNs }: BigIntStats): string {
  return `${ino}.${birthtimeNs}`;
}

/** Returns the hash by which content is looked up. */
export function hashOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').slice(0, 20);
}

/** Returns a description of the content at each path. Equal trees have equal listings. */
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

/** Returns the identity of a tree's root folder. */
export function rootOf(tree: Tree): string {
  return Object.keys(tree)[0] ?? '';
}
