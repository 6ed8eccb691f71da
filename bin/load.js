'use strict';

// Loads the build, and caches the compiled code for the next start, because compiling takes a third of the run time of
// a short command. (Node has had its own compile cache since 22.8. It omits functions that are compiled only when they
// are called, which are most of them.)
//
// Cached code is executed, so no other user may be able to write it. Each file has a checksum, because V8 does not
// detect damage. If the cache cannot be read or written, everything is compiled again without a message.

const { Buffer } = require('node:buffer');
const fs = require('node:fs');
const path = require('node:path');
const { Script } = require('node:vm');
const { crc32 } = require('node:zlib');

const [head, tail] = ['(function (exports, require, module, __filename, __dirname) {', '\n})'].map((text) =>
  Buffer.from(text),
);

/**
 * Returns a loader for the modules of a folder. They may require each other as `./NAME`, and the modules of Node.
 * @param {string} folder
 * @param {string | undefined} cache from {@link openCache}
 * @param {string} use the purpose of the run: the first file is cached separately for each, because it contains the
 * code of all commands, and one command needs little of it
 * @param {(name: string) => Buffer} [asset] returns an asset of the executable: a file of the folder, or its compiled
 * code in `compiled/`; throws if there is none
 * @returns {{ load: (name: string) => any, keep: () => void }} `keep` writes newly compiled code to the cache; call it
 * at the end
 */
exports.loader = (folder, cache, use, asset) => {
  const read = asset ?? fs.readFileSync;
  const loaded = new Map();
  const fresh = [];
  const load = (name) => {
    const cachedModule = loaded.get(name);
    if (cachedModule !== undefined) return cachedModule.exports;
    const module = { exports: {} };
    loaded.set(name, module);
    const filename = `${folder}/${name}`;
    const source = wrapped(read(filename));
    const entry = cache && `${cache}/${entryOf(loaded.size === 1 ? `${use}-${name}` : name, source)}`;
    const cachedData =
      (asset && readEntry(asset, `compiled/${entryOf(name, source)}`)) ??
      (cache && readEntry(fs.readFileSync, entry));
    const script = new Script(source.toString(), { filename, cachedData, columnOffset: -head.length });
    if (cache && (cachedData === undefined || script.cachedDataRejected)) fresh.push({ entry, script });
    const inner = (id) => (id.startsWith('./') ? load(id.slice(2)) : require(id));
    script.runInThisContext()(module.exports, inner, module, filename, folder);
    return module.exports;
  };
  const keep = () => {
    for (const { entry, script } of fresh) writeEntry(entry, script.createCachedData());
  };
  return { load, keep };
};

// Joins bytes, because V8 would copy a joined string, and its initial heap is small.
function wrapped(source) {
  return Buffer.concat([head, source, tail]);
}

function entryOf(name, source) {
  return [process.version, process.arch, name, crc32(source).toString(16)].join('-');
}

/**
 * Writes the compiled code of all functions of a file, for an executable. The file is not executed, so if V8 runs with
 * `--predictable`, the same file always results in the same bytes.
 * @param {string} filename below the working directory, the same path that the executable will use
 * @param {string} folder
 */
exports.compile = (filename, folder) => {
  const { setFlagsFromString } = require('node:v8');
  const source = wrapped(fs.readFileSync(filename));
  setFlagsFromString('--no-lazy');
  const script = new Script(source.toString(), { filename, columnOffset: -head.length });
  // The compiled code contains the current flags, and V8 rejects it if the flags differ.
  setFlagsFromString('--lazy');
  writeEntry(path.join(folder, entryOf(path.basename(filename), source)), script.createCachedData());
};

function readEntry(read, entry) {
  try {
    const bytes = read(entry);
    const data = bytes.subarray(4);
    return bytes.length > 4 && bytes.readUInt32LE(0) === crc32(data) ? data : undefined;
  } catch {
    return undefined;
  }
}

function writeEntry(entry, data) {
  const bytes = Buffer.concat([Buffer.alloc(4), data]);
  bytes.writeUInt32LE(crc32(data), 0);
  const own = `${entry}.${process.pid}`;
  try {
    fs.writeFileSync(own, bytes, { flag: 'wx', mode: 0o600 });
    fs.renameSync(own, entry);
  } catch {
    // The cache is optional. The disk may be full, for example.
  }
}

/**
 * Returns the cache folder of a version, and creates it if it is missing. Undefined if that fails, or if others may
 * write to it.
 * @param {string} version of mgw; the caches of other versions are removed
 * @param {NodeJS.ProcessEnv} env
 */
exports.openCache = (
  version,
  { HOME, LOCALAPPDATA, NODE_DISABLE_COMPILE_CACHE, XDG_CACHE_HOME } = process.env,
) => {
  const base = [XDG_CACHE_HOME, HOME, LOCALAPPDATA].find((place) => place && path.isAbsolute(place));
  if (NODE_DISABLE_COMPILE_CACHE || base === undefined) return undefined;
  const own = path.join(base, base === HOME ? '.cache' : '', 'mgw', 'compiled');
  const folder = path.join(own, version);
  try {
    // Never write to another user's home. A folder below one that others may write to could be replaced.
    if (!isOurs(base) || !areSafe(path.dirname(fs.realpathSync(base)))) return undefined;
    const cacheHome = path.dirname(path.dirname(own));
    const folders = [cacheHome, path.dirname(own), own, folder];
    if (fs.existsSync(cacheHome) && !isOurs(cacheHome)) return undefined;
    if (!fs.existsSync(folder)) {
      if (isOurs(own))
        for (const old of fs.readdirSync(own)) fs.rmSync(path.join(own, old), { recursive: true });
      // Not with Node's `recursive` option, which hangs if the system refuses a name under an existing folder (/proc).
      for (const each of folders) if (!fs.existsSync(each)) fs.mkdirSync(each, { mode: 0o700 });
    }
    return folders.every(isOurs) ? folder : undefined;
  } catch {
    return undefined;
  }
};

// Folders of root are safe. In a sticky folder, others cannot rename the files of this user.
function areSafe(folder) {
  if (process.platform === 'win32') return true;
  const { uid, mode } = fs.lstatSync(folder);
  const isSafe = (uid === 0 || uid === process.getuid()) && ((mode & 0o022) === 0 || (mode & 0o1000) !== 0);
  const parent = path.dirname(folder);
  return isSafe && (parent === folder || areSafe(parent));
}

function isOurs(folder) {
  const stat = fs.lstatSync(folder, { throwIfNoEntry: false });
  if (stat === undefined || process.platform === 'win32') return stat !== undefined;
  return stat.uid === process.getuid() && (stat.mode & 0o022) === 0;
}
