import fs from 'node:fs';
import promises, { type FileHandle } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';

/** A Node call that changes the contents of a disk or makes them durable. */
export interface DiskOperation {
  /**
   * The name of the Node call, such as open, write, sync or link. Omits the suffix `Sync`, and the prefix `f` of calls
   * for descriptors.
   */
  name: string;
  /**
   * The operation's path. For an operation with two paths, the path that it creates. Undefined for a file that was
   * opened before the first call of {@link watchDisk}.
   */
  path: string | undefined;
  /** The descriptor, if the operation concerns an open file. */
  descriptor?: number | undefined;
  /** Performs the operation with only the first half of its bytes. Undefined if the operation writes no bytes. */
  half?: (() => unknown) | undefined;
}

/**
 * Receives every operation, and decides whether to run it. The operation's caller receives the returned value, such as
 * the result of `run`.
 */
export type Watcher = (operation: DiskOperation, run: () => unknown) => unknown;

let watcher: Watcher | undefined;
let isPatched = false;

/**
 * Passes every disk operation of this process to `watch` until the next call. If `watch` is undefined, stops watching.
 * Watches promise and synchronous calls, regardless of how they are imported. Watches only two calls with callbacks:
 * `fsync` and `writev`.
 */
export async function watchDisk(watch: Watcher | undefined): Promise<void> {
  watcher = watch;
  if (isPatched) return;
  isPatched = true;
  const probe = await promises.open('/dev/null', 'r');
  const handles = Object.getPrototypeOf(probe) as Holder;
  await probe.close();
  patchNames(promises as unknown as Holder, '');
  patchNames(fs as unknown as Holder, 'Sync');
  for (const name of ['write', 'writev', 'writeFile', 'appendFile', 'sync', 'datasync', 'truncate'])
    wrap(handles, name, (self) => ({
      name,
      path: handlePaths.get(self as object),
      descriptor: (self as FileHandle).fd,
    }));
  for (const name of ['write', 'writev', 'fsync', 'fdatasync', 'ftruncate'])
    wrap(fs as unknown as Holder, `${name}Sync`, (_, [file]) => ({
      name: name.replace(/^f/, ''),
      path: descriptorPaths.get(file),
      descriptor: file as number,
    }));
  for (const name of ['fsync', 'writev']) wrapWithCallback(fs as unknown as Holder, name);
  syncBuiltinESMExports();
}

type Call = (this: unknown, ...args: unknown[]) => unknown;
type Holder = Record<string, Call | undefined>;
type Describe = (self: unknown, args: unknown[]) => DiskOperation | undefined;

/** The paths of open files, by handle and by descriptor. */
const handlePaths = new WeakMap<object, string>();
const descriptorPaths = new Map<unknown, string>();

function patchNames(holder: Holder, suffix: string): void {
  rememberOpened(holder, `open${suffix}`);
  // Opening a file to read it, or a folder to sync it, changes nothing.
  wrap(holder, `open${suffix}`, (_, [path, flags]) =>
    opensToWrite(flags) ? { name: 'open', path: nameOf(path) } : undefined,
  );
  for (const name of ['mkdir', 'mkdtemp', 'unlink', 'rm', 'rmdir', 'truncate', 'writeFile', 'appendFile'])
    wrap(holder, name + suffix, (_, [path]) => ({ name, path: nameOf(path) }));
  for (const name of ['link', 'symlink', 'rename', 'copyFile'])
    wrap(holder, name + suffix, (_, [, path]) => ({ name, path: nameOf(path) }));
}

function rememberOpened(holder: Holder, method: string): void {
  const real = holder[method] as Call;
  const remember = (file: unknown, path: string): unknown => {
    const isHandle = typeof file === 'object' && file !== null;
    if (isHandle) handlePaths.set(file, path);
    descriptorPaths.set(isHandle ? (file as FileHandle).fd : file, path);
    return file;
  };
  holder[method] = function (this: unknown, ...args: unknown[]): unknown {
    const opened = real.apply(this, args);
    const path = nameOf(args[0]);
    return opened instanceof Promise ? opened.then((file) => remember(file, path)) : remember(opened, path);
  };
}

// Only calls with callbacks can write or sync a synchronously opened file without blocking.
function wrapWithCallback(holder: Holder, method: string): void {
  const real = holder[method] as Call;
  holder[method] = (...args): void => {
    const file = args[0] as number;
    const ended = args.pop() as (error: unknown, result?: unknown) => void;
    const run = (): Promise<unknown> =>
      new Promise((resolve, reject) => {
        real(...args, (error: Error | null, result: unknown) =>
          error === null ? resolve(result) : reject(error),
        );
      });
    const operation = { name: method.replace(/^f/, ''), path: descriptorPaths.get(file), descriptor: file };
    const watch = watcher;
    new Promise((resolve) => resolve(watch === undefined ? run() : watch(operation, run))).then(
      (result) => ended(null, result),
      ended,
    );
  };
}

function opensToWrite(flags: unknown): boolean {
  return typeof flags === 'number' ? (flags & 3) !== 0 : typeof flags === 'string' && flags !== 'r';
}

function wrap(holder: Holder, method: string, describe: Describe): void {
  const real = holder[method];
  if (real === undefined) throw new Error(`Node has no ${method}`);
  holder[method] = function (this: unknown, ...args: unknown[]): unknown {
    const operation = watcher && describe(this, args);
    const run = (): unknown => real.apply(this, args);
    if (watcher === undefined || operation === undefined) return run();
    const halved = halfOf(args);
    if (halved !== undefined) operation.half = () => real.apply(this, halved);
    if (method.endsWith('Sync')) return watcher(operation, run);
    const watch = watcher;
    return new Promise((resolve) => resolve(watch(operation, run)));
  };
}

// Returns the arguments of a call with only half of the bytes. Supports `write(bytes, offset, length, position)`,
// `write(descriptor, bytes, …)` and `writeFile(path, bytes, options)`.
function halfOf(args: readonly unknown[]): unknown[] | undefined {
  const at = args.findIndex((value) => value instanceof Uint8Array);
  if (at < 0) return undefined;
  const [bytes, offset, length, ...rest] = args.slice(at) as [Uint8Array, unknown, unknown, ...unknown[]];
  const before = args.slice(0, at);
  if (typeof offset !== 'number')
    return [...before, bytes.subarray(0, Math.ceil(bytes.length / 2)), ...args.slice(at + 1)];
  const whole = typeof length === 'number' ? length : bytes.length - offset;
  return [...before, bytes, offset, Math.ceil(whole / 2), ...rest];
}

function nameOf(path: unknown): string {
  return path instanceof URL ? path.pathname : String(path);
}
