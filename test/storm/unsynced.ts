import { hashOf, rootOf, type Contents, type Inode, type Tree } from './tree.ts';

/** The kinds of unsynced data that may survive a power cut. */
export const remains = {
  lost: 'nothing that was not synced is there',
  removed: 'nothing that was not synced is there, but for removals',
  renamed: 'nothing that was not synced is there, but for what was renamed',
  named: 'names are there, bytes that were not synced are not',
  zeroed: 'names are there, and zeros in place of bytes that were not synced',
  torn: 'names are there, and half of the bytes that were not synced',
  kept: 'everything is there, as after kill -9',
} as const;

export type Remains = keyof typeof remains;

const empty = Buffer.alloc(0);

/** Tracks the data on a disk that would certainly survive a power cut. Initially, all data would survive. */
export class UnsyncedDisk {
  #now: Tree;
  /** Each inode at its last sync. */
  readonly #synced: Map<string, Inode>;
  /** The last state of each inode, even if all of the inode's names have been removed. */
  readonly #seen: Map<string, Inode>;
  /** The names removed by deletions and renames, as `folder/name/inode`. */
  readonly #removed: Set<string>;
  readonly #movedAway: Set<string>;
  /** The inodes whose names were created by renames, by `folder/name`. */
  readonly #movedTo: Map<string, string>;

  constructor(tree: Tree, from?: UnsyncedDisk) {
    this.#now = tree;
    this.#synced = new Map(from === undefined ? Object.entries(tree) : from.#synced);
    this.#seen = new Map(from === undefined ? Object.entries(tree) : from.#seen);
    this.#removed = new Set(from === undefined ? [] : from.#removed);
    this.#movedAway = new Set(from === undefined ? [] : from.#movedAway);
    this.#movedTo = new Map(from === undefined ? [] : from.#movedTo);
  }

  /** Returns a snapshot of this disk. */
  copy(): UnsyncedDisk {
    return new UnsyncedDisk(this.#now, this);
  }

  /** Records that an operation changed the disk from `before` to `after`. */
  change(before: Tree, after: Tree, operation: string): void {
    this.#now = after;
    for (const [id, inode] of Object.entries(after)) this.#seen.set(id, inode);
    const [was, is] = [namesIn(before), namesIn(after)];
    const away = removals.has(operation)
      ? this.#removed
      : operation === 'rename'
        ? this.#movedAway
        : undefined;
    for (const name of was.filter((each) => !is.includes(each))) away?.add(name);
    if (operation !== 'rename') return;
    for (const name of is.filter((each) => !was.includes(each))) {
      const end = name.lastIndexOf('/');
      this.#movedAway.delete(name);
      this.#movedTo.set(name.slice(0, end), name.slice(end + 1));
    }
  }

  /** Records that a file or folder is durable in its state in `tree`, which was read before the sync began. */
  sync(id: string, tree: Tree): void {
    const inode = tree[id] ?? this.#now[id];
    if (inode !== undefined) this.#synced.set(id, inode);
  }

  /** Returns the disk after a power cut, and adds new contents to `contents`. */
  after(what: Remains, contents: Map<string, Buffer>): Tree {
    const tree: Tree = {};
    const visit = (id: string): void => {
      if (tree[id] !== undefined) return;
      tree[id] = this.#inodeAfter(id, what, contents);
      for (const child of Object.values(tree[id].names ?? {})) visit(child);
    };
    visit(rootOf(this.#now));
    return tree;
  }

  #inodeAfter(id: string, what: Remains, contents: Map<string, Buffer>): Inode {
    const [now, synced] = [this.#now[id], this.#synced.get(id)];
    const inode = now ?? this.#seen.get(id) ?? { mode: 0o600 };
    if (what === 'kept' || inode.link !== undefined) return inode;
    if (inode.names !== undefined) return { mode: inode.mode, names: this.#namesAfter(id, what) };
    const bytes = bytesAfter(what, bytesOf(synced, contents), bytesOf(now, contents));
    const content = hashOf(bytes);
    contents.set(content, bytes);
    return { mode: inode.mode, content };
  }

  #namesAfter(folder: string, what: Remains): Record<string, string> {
    const isSyncedOnly = what === 'lost' || what === 'removed' || what === 'renamed';
    const names = (isSyncedOnly ? this.#synced.get(folder) : this.#now[folder])?.names ?? {};
    const lostNames = what === 'removed' ? this.#removed : what === 'renamed' ? this.#movedAway : undefined;
    const kept = Object.entries(names).filter(
      ([name, id]) => lostNames?.has(`${folder}/${name}/${id}`) !== true,
    );
    const moved = Object.entries(this.#now[folder]?.names ?? {}).filter(
      ([name, id]) => what === 'renamed' && this.#movedTo.get(`${folder}/${name}`) === id,
    );
    return Object.fromEntries([...kept, ...moved]);
  }
}

const removals = new Set(['unlink', 'rm', 'rmdir']);

function namesIn(tree: Tree): string[] {
  return Object.entries(tree).flatMap(([folder, { names = {} }]) =>
    Object.entries(names).map(([name, id]) => `${folder}/${name}/${id}`),
  );
}

function bytesOf(inode: Inode | undefined, contents: Contents): Buffer {
  return contents.get(inode?.content ?? '') ?? empty;
}

function bytesAfter(what: Remains, synced: Buffer, now: Buffer): Buffer {
  if (what !== 'torn' && what !== 'zeroed') return synced;
  const from = now.subarray(0, synced.length).equals(synced) ? synced.length : 0;
  if (what === 'torn') return now.subarray(0, from + Math.ceil((now.length - from) / 2));
  return Buffer.concat([now.subarray(0, from), Buffer.alloc(now.length - from)]);
}
