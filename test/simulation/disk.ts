import { constants } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';

const { O_APPEND, O_CREAT, O_EXCL, O_TRUNC, O_WRONLY, O_RDWR } = constants;

/** A file or a folder on the simulated disk. */
interface Inode {
  ino: number;
  mode: number;
  nlink: number;
  mtimeMs: number;
  /** A file's bytes, and the bytes that survive a power cut. */
  data: Buffer;
  synced: Buffer;
  /** A folder's names, the names that survive a power cut, and the unsynced changes in order. */
  names?: Map<string, Inode>;
  syncedNames: Map<string, Inode>;
  unsynced: { order: number; name: string; inode: Inode | undefined }[];
}

/** The result of a `stat` call. */
export interface Status {
  kind: 'file' | 'folder';
  ino: number;
  mode: number;
  nlink: number;
  size: number;
  mtimeMs: number;
}

/**
 * The part of unsynced data that survives a power cut: nothing, everything, or the first few name changes and any of
 * the bytes. The name changes of all folders have one order (`journal`: ext4, xfs), or each folder has its own order
 * (`reordered`).
 */
export type Remains = 'lost' | 'kept' | 'journal' | 'reordered';

/** A system call's error, as the caller receives it. */
export class SystemError extends Error {
  constructor(readonly code: string) {
    super(code);
  }
}

interface Open {
  inode: Inode;
  at: number;
  appends: boolean;
}

/** A disk in memory that tracks which data is synced. Each method is one system call. */
export class Disk {
  /**
   * Infinity unless the disk is full. On a full disk, nothing can be created, and a write stores at most `room` bytes.
   */
  room = Infinity;
  #inodes = 0;
  #changes = 0;
  #descriptors = 10;
  #root: Inode;
  readonly #open = new Map<number, Open>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
    this.#root = this.#make(0o755, true);
  }

  open(path: string, flags: number, mode = 0o666): number {
    let inode = this.#find(path);
    if (inode !== undefined && (flags & O_EXCL) !== 0) throw new SystemError('EEXIST');
    if (inode === undefined) {
      if ((flags & O_CREAT) === 0) throw new SystemError('ENOENT');
      this.#needsRoom();
      inode = this.#make(mode & ~0o022, false);
      this.#name(path, inode);
    } else if (inode.names !== undefined && (flags & (O_WRONLY | O_RDWR)) !== 0)
      throw new SystemError('EISDIR');
    if ((flags & O_TRUNC) !== 0) this.#change(inode, Buffer.alloc(0));
    return this.openInode(inode, (flags & O_APPEND) !== 0);
  }

  openInode(inode: Inode, appends = false): number {
    this.#descriptors += 1;
    this.#open.set(this.#descriptors, { inode, at: 0, appends });
    return this.#descriptors;
  }

  /** Opens text that is not stored on the disk, such as a file in /proc. */
  openText(text: string): number {
    return this.openInode({ ...this.#make(0o444, false), data: Buffer.from(text) });
  }

  close(file: number): void {
    this.#opened(file);
    this.#open.delete(file);
  }

  read(file: number, length: number, position: number | null): Uint8Array {
    const open = this.#opened(file);
    if (open.inode.names !== undefined) throw new SystemError('EISDIR');
    const at = position ?? open.at;
    const bytes = Uint8Array.from(open.inode.data.subarray(at, at + length));
    if (position === null) open.at += bytes.length;
    return bytes;
  }

  write(file: number, bytes: Uint8Array, position: number | null): number {
    const open = this.#opened(file);
    if (this.room === 0) throw new SystemError('ENOSPC');
    const part = bytes.subarray(0, this.room);
    const { data } = open.inode;
    const at = open.appends ? data.length : (position ?? open.at);
    const after = Buffer.alloc(Math.max(data.length, at + part.length));
    data.copy(after);
    after.set(part, at);
    this.#change(open.inode, after);
    if (position === null) open.at = at + part.length;
    if (part.length < bytes.length) this.room = 0;
    return part.length;
  }

  ftruncate(file: number, length: number): void {
    const { inode } = this.#opened(file);
    this.#change(inode, Buffer.concat([inode.data, Buffer.alloc(length)]).subarray(0, length));
  }

  fsync(file: number): void {
    const { inode } = this.#opened(file);
    inode.synced = inode.data;
    inode.syncedNames = new Map(inode.names);
    inode.unsynced = [];
  }

  fstat(file: number): Status {
    return statusOf(this.#opened(file).inode);
  }

  stat(path: string): Status {
    return statusOf(this.#at(path));
  }

  mkdir(path: string, mode = 0o777): void {
    if (this.#find(path) !== undefined) throw new SystemError('EEXIST');
    this.#needsRoom();
    this.#name(path, this.#make(mode & ~0o022, true));
  }

  rmdir(path: string): void {
    const folder = this.#at(path);
    if (folder.names === undefined) throw new SystemError('ENOTDIR');
    if (folder.names.size > 0) throw new SystemError('ENOTEMPTY');
    this.#name(path, undefined);
  }

  unlink(path: string): void {
    if (this.#at(path).names !== undefined) throw new SystemError('EISDIR');
    this.#name(path, undefined);
  }

  rename(from: string, to: string): void {
    const inode = this.#at(from);
    if (this.#find(to) === inode) return;
    this.#name(to, inode);
    // The journal records a rename as one change, so a power cut keeps all of it or nothing.
    this.#changes -= 1;
    this.#name(from, undefined);
  }

  link(from: string, to: string): void {
    const inode = this.#at(from);
    if (this.#find(to) !== undefined) throw new SystemError('EEXIST');
    this.#needsRoom();
    this.#name(to, inode);
  }

  readdir(path: string): string[] {
    const { names } = this.#at(path);
    if (names === undefined) throw new SystemError('ENOTDIR');
    return [...names.keys()];
  }

  realpath(path: string): string {
    const whole = resolve('/home', path);
    this.#at(whole);
    return whole;
  }

  chmod(path: string, mode: number): void {
    this.#at(path).mode = mode;
  }

  /** Cuts the power. `remains` determines the unsynced data that survives. */
  cut(remains: Remains, random: () => number): void {
    this.#open.clear();
    this.room = Infinity;
    const unsynced = [...this.#all(this.#root)].flatMap((inode) => inode.unsynced);
    if (remains !== 'kept') this.#settle(this.#root, remains, lastKept(unsynced, random), random);
    for (const inode of this.#all(this.#root)) inode.nlink = 0;
    for (const folder of this.#all(this.#root))
      for (const inode of folder.names?.values() ?? []) inode.nlink += 1;
  }

  /** Makes all data durable, as the initial state of a schedule. */
  sync(): void {
    for (const inode of this.#all(this.#root)) this.fsync(this.openInode(inode));
    this.#open.clear();
  }

  /** Returns the content of every file by its path. */
  files(): Map<string, Buffer> {
    const found = new Map<string, Buffer>();
    const walk = (folder: Inode, path: string): void => {
      for (const [name, inode] of folder.names ?? [])
        if (inode.names === undefined) found.set(`${path}/${name}`, inode.data);
        else walk(inode, `${path}/${name}`);
    };
    walk(this.#root, '');
    return found;
  }

  #settle(inode: Inode, remains: Remains, common: number, random: () => number): void {
    inode.data = remains === 'lost' ? inode.synced : unsyncedBytes(inode, random);
    inode.synced = inode.data;
    if (inode.names === undefined) return;
    inode.names = new Map(inode.syncedNames);
    const last = remains === 'journal' ? common : lastKept(inode.unsynced, random);
    for (const { order, name, inode: named } of remains === 'lost' ? [] : inode.unsynced)
      if (order > last) break;
      else if (named === undefined) inode.names.delete(name);
      else inode.names.set(name, named);
    inode.syncedNames = new Map(inode.names);
    inode.unsynced = [];
    for (const named of new Set(inode.names.values())) this.#settle(named, remains, common, random);
  }

  #all(inode: Inode, found = new Set<Inode>()): Set<Inode> {
    found.add(inode);
    for (const named of inode.names?.values() ?? []) if (!found.has(named)) this.#all(named, found);
    return found;
  }

  #make(mode: number, isFolder: boolean): Inode {
    this.#inodes += 1;
    const [ino, nothing, mtimeMs] = [this.#inodes, Buffer.alloc(0), this.#now()];
    const inode: Inode = {
      ino,
      mode,
      nlink: 0,
      mtimeMs,
      data: nothing,
      synced: nothing,
      syncedNames: new Map(),
      unsynced: [],
    };
    return isFolder ? { ...inode, names: new Map() } : inode;
  }

  #change(inode: Inode, data: Buffer): void {
    inode.data = data;
    inode.mtimeMs = this.#now();
  }

  #name(path: string, inode: Inode | undefined): void {
    const folder = this.#at(dirname(path));
    if (folder.names === undefined) throw new SystemError('ENOTDIR');
    const name = basename(path);
    const before = folder.names.get(name);
    if (before !== undefined) before.nlink -= 1;
    if (inode !== undefined) inode.nlink += 1;
    if (inode === undefined) folder.names.delete(name);
    else folder.names.set(name, inode);
    this.#changes += 1;
    folder.unsynced.push({ order: this.#changes, name, inode });
    folder.mtimeMs = this.#now();
  }

  #needsRoom(): void {
    if (this.room === 0) throw new SystemError('ENOSPC');
  }

  #opened(file: number): Open {
    const open = this.#open.get(file);
    if (open === undefined) throw new SystemError('EBADF');
    return open;
  }

  #at(path: string): Inode {
    const inode = this.#find(path);
    if (inode === undefined) throw new SystemError('ENOENT');
    return inode;
  }

  #find(path: string): Inode | undefined {
    let inode: Inode | undefined = this.#root;
    for (const name of path.split('/')) {
      if (name === '' || inode === undefined) continue;
      if (inode.names === undefined) throw new SystemError('ENOTDIR');
      inode = inode.names.get(name);
    }
    return inode;
  }
}

// Returns the sequence number of the last change that survives a power cut, or 0 if none survives.
function lastKept(unsynced: Inode['unsynced'], random: () => number): number {
  const orders = unsynced.map(({ order }) => order).sort((one, other) => one - other);
  return orders[Math.floor(random() * (orders.length + 1)) - 1] ?? 0;
}

// Returns a file's old bytes or part of its new bytes. The size may be the new one, in which
// case missing bytes are zeros.
function unsyncedBytes({ data, synced }: Inode, random: () => number): Buffer {
  const from = data.subarray(0, synced.length).equals(synced) ? synced.length : 0;
  const part = data.subarray(0, from + Math.floor(random() * (data.length - from + 1)));
  const how = random();
  if (how < 0.5) return synced;
  return Buffer.concat([part, Buffer.alloc(how < 0.75 ? 0 : data.length - part.length)]);
}

function statusOf({ names, ino, mode, nlink, data, mtimeMs }: Inode): Status {
  return { kind: names === undefined ? 'file' : 'folder', ino, mode, nlink, size: data.length, mtimeMs };
}
