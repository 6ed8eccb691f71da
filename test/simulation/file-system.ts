import fs from 'node:fs';
import os from 'node:os';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import type { Status } from './calls.ts';
import type { System } from './program.ts';

const { constants } = fs;
const { O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC, O_APPEND } = constants;
const flagsOf: Record<string, number> = {
  r: O_RDONLY,
  'r+': O_RDWR,
  w: O_WRONLY | O_CREAT | O_TRUNC,
  wx: O_WRONLY | O_CREAT | O_EXCL,
  'wx+': O_RDWR | O_CREAT | O_EXCL,
  a: O_WRONLY | O_CREAT | O_APPEND,
};

type Wanted = { bigint?: boolean; throwIfNoEntry?: boolean } | undefined;
type Encoding = string | { encoding?: string } | undefined;

/** Returns the members of Node's file modules that mgw uses, implemented on the machine's disk. */
export function fileSystem(system: System): Record<string, unknown> {
  const files = synchronous(system);
  const later = <T>(name: string, ...args: unknown[]): Promise<T> =>
    new Promise((resolve, reject) => {
      system.begin(name, args, (value, error) => (error === undefined ? resolve(value as T) : reject(error)));
    });
  const promises = asynchronous(later);
  const node = {
    ...files,
    constants,
    fsync: (file: number, done: (error: Error | null) => void): void =>
      void later('fsync', file).then(() => done(null), done),
    read: Object.assign(() => undefined, {
      [promisify.custom]: async (
        file: number,
        buffer: Buffer,
        offset: number,
        length: number,
        at: number | null,
      ) => promises.readInto(file, buffer, offset, length, at),
    }),
    writev: (
      file: number,
      chunks: Uint8Array[],
      at: number,
      done: (error: Error | null, bytes?: number) => void,
    ): void =>
      void later<number>('write', file, Buffer.concat(chunks), at).then((bytes) => done(null, bytes), done),
    createReadStream: (path: string) =>
      Readable.from(inPieces(() => promises.readFile(path) as Promise<Buffer>)),
  };
  return {
    'node:fs': node,
    'node:fs/promises': promises,
    'node:timers/promises': { setTimeout: (ms: number) => later('timer', ms) },
    'node:os': {
      ...os,
      hostname: () => 'virtual',
      homedir: () => '/home',
      tmpdir: () => '/tmp',
      availableParallelism: () => 1,
    },
  };
}

async function* inPieces(read: () => Promise<Buffer>): AsyncGenerator<Buffer> {
  yield await read();
}

function synchronous(system: System): Record<string, unknown> {
  const call = system.call.bind(system);
  const status = (name: string) => (path: string | number, wanted?: Wanted) => {
    try {
      return statusOf(call<Status>(name, path), wanted);
    } catch (error) {
      if (
        wanted?.throwIfNoEntry === false &&
        ['ENOENT', 'ENOTDIR'].includes((error as { code: string }).code)
      )
        return undefined;
      throw error;
    }
  };
  const open = (path: string, flags: string | number = 'r', mode = 0o666): number =>
    call('open', path, typeof flags === 'number' ? flags : flagsOf[flags], mode);
  const during = <T>(path: string | number, flags: string, use: (file: number) => T, mode?: number): T => {
    if (typeof path === 'number') return use(path);
    const file = open(path, flags, mode);
    try {
      return use(file);
    } finally {
      call('close', file);
    }
  };
  const write =
    (flags: string) =>
    (path: string, text: string, { mode }: { mode?: number } = {}) =>
      during(
        path,
        flags,
        (file) => {
          for (let bytes = Buffer.from(text); bytes.length > 0;)
            bytes = bytes.subarray(call<number>('write', file, bytes, null));
        },
        mode,
      );
  const realpathSync = Object.assign((path: string) => call<string>('realpath', path), {
    native: (path: string) => call<string>('realpath', path),
  });
  return {
    ...{ openSync: open, realpathSync, writeFileSync: write('w'), appendFileSync: write('a') },
    ...{ fstatSync: status('fstat'), lstatSync: status('stat'), statSync: status('stat') },
    closeSync: (file: number) => call('close', file),
    readSync: (
      file: number,
      buffer: Buffer,
      offset = 0,
      length = buffer.length,
      at: number | null = null,
    ): number => {
      const bytes = call<Uint8Array>('read', file, length, at);
      buffer.set(bytes, offset);
      return bytes.length;
    },
    writeSync: (
      file: number,
      bytes: Uint8Array,
      offset = 0,
      length = bytes.length,
      at: number | null = null,
    ) => call('write', file, bytes.subarray(offset, offset + length), at),
    writevSync: (file: number, chunks: Uint8Array[], at: number | null = null) =>
      call('write', file, Buffer.concat(chunks), at),
    ftruncateSync: (file: number, length = 0) => call('ftruncate', file, length),
    mkdirSync: (path: string, { mode }: { mode?: number } = {}) => call('mkdir', path, mode),
    readFileSync: (path: string | number, encoding?: Encoding) =>
      during(path, 'r', (file) => decoded(call<Uint8Array>('read', file, 1e9, null), encoding)),
    accessSync: (path: string) => void call('stat', path),
    existsSync: (path: string) => status('stat')(path, { throwIfNoEntry: false }) !== undefined,
    linkSync: (from: string, to: string) => call('link', from, to),
    renameSync: (from: string, to: string) => call('rename', from, to),
    unlinkSync: (path: string) => call('unlink', path),
    rmSync: (path: string) => call('unlink', path),
    readdirSync: (path: string) => call('readdir', path),
    readlinkSync: (path: string, encoding?: string) =>
      decoded(Buffer.from(call<string>('readlink', path)), encoding === 'buffer' ? undefined : 'utf8'),
  };
}

type Later = <T>(name: string, ...args: unknown[]) => Promise<T>;

function asynchronous(later: Later) {
  const readInto = async (
    file: number,
    buffer: Buffer,
    offset = 0,
    length = buffer.length,
    at: number | null = null,
  ) => {
    const bytes = await later<Uint8Array>('read', file, length, at);
    buffer.set(bytes, offset);
    return { bytesRead: bytes.length, buffer };
  };
  const open = async (path: string, flags: string | number = 'r', mode = 0o666) => {
    const fd = await later<number>('open', path, typeof flags === 'number' ? flags : flagsOf[flags], mode);
    const write = async (bytes: string | Uint8Array) => ({
      bytesWritten: await later<number>('write', fd, Buffer.from(bytes), null),
    });
    const writeFile = async (text: string | Uint8Array): Promise<void> => {
      for (let bytes = Buffer.from(text); bytes.length > 0;)
        bytes = bytes.subarray((await write(bytes)).bytesWritten);
    };
    return {
      ...{ fd, write, writeFile, appendFile: writeFile },
      read: (buffer: Buffer, offset?: number, length?: number, at?: number) =>
        readInto(fd, buffer, offset, length, at),
      readFile: async (encoding?: Encoding) =>
        decoded(await later<Uint8Array>('read', fd, 1e9, null), encoding),
      stat: async (wanted?: Wanted) => statusOf(await later<Status>('fstat', fd), wanted),
      ...{
        sync: () => later('fsync', fd),
        datasync: () => later('fsync', fd),
        close: () => later('close', fd),
      },
      truncate: (length = 0) => later('ftruncate', fd, length),
    };
  };
  const within = async <T>(
    path: string,
    flags: string,
    use: (file: Awaited<ReturnType<typeof open>>) => Promise<T>,
  ) => {
    const file = await open(path, flags);
    return use(file).finally(() => file.close());
  };
  const stat = async (path: string, wanted?: Wanted) => statusOf(await later<Status>('stat', path), wanted);
  const rm = (path: string, { force = false } = {}): Promise<void> =>
    later<undefined>('unlink', path).catch((error: unknown) => {
      if (!force || (error as { code?: string }).code !== 'ENOENT') throw error;
    });
  const readFile = (path: string, encoding?: Encoding) =>
    within(path, 'r', (file) => file.readFile(encoding));
  return {
    ...{ open, stat, lstat: stat, rm, readFile, readInto, constants },
    writeFile: (path: string, text: string) => within(path, 'w', (file) => file.writeFile(text)),
    appendFile: (path: string, text: string) => within(path, 'a', (file) => file.writeFile(text)),
    copyFile: async (from: string, to: string) => {
      const bytes = (await readFile(from)) as Buffer;
      await within(to, 'w', (file) => file.writeFile(bytes));
    },
    mkdir: (path: string, { mode }: { mode?: number } = {}) => later('mkdir', path, mode),
    rename: (from: string, to: string) => later('rename', from, to),
    link: (from: string, to: string) => later('link', from, to),
    unlink: (path: string) => later('unlink', path),
    rmdir: (path: string) => later('rmdir', path),
    readdir: (path: string) => later('readdir', path),
    realpath: (path: string) => later('realpath', path),
    chmod: (path: string, mode: number) => later('chmod', path, mode),
  };
}

function decoded(bytes: Uint8Array, encoding: Encoding): Buffer | string {
  const name = typeof encoding === 'string' ? encoding : encoding?.encoding;
  return name === undefined ? Buffer.from(bytes) : Buffer.from(bytes).toString(name as BufferEncoding);
}

function statusOf({ kind, ino, mode, nlink, size, mtimeMs }: Status, wanted: Wanted): object {
  const numbers = { ino, dev: 1, mode, nlink, size, uid: 1000, gid: 1000, mtimeMs, ctimeMs: mtimeMs };
  const exact = (): object => {
    const entries = Object.entries(numbers).map(
      ([name, value]) => [name, BigInt(Math.floor(value))] as const,
    );
    return { ...(Object.fromEntries(entries) as object), mtimeNs: BigInt(Math.floor(mtimeMs * 1e6)) };
  };
  return {
    ...(wanted?.bigint === true ? exact() : numbers),
    isFile: () => kind === 'file',
    isDirectory: () => kind === 'folder',
    isSymbolicLink: () => false,
  };
}
