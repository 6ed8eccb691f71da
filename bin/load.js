'use strict';

// Loads the build, and keeps for the next start what V8 made of it: a third of a short command is compiling. (Node's own
// compile cache is of 22.8 and later, and has none of the functions that are compiled when they are called: most.)
//
// What is kept is run, so no other user may write to it; each file of it is checked, as V8 does not. It is never needed:
// where it cannot be read or written, everything is compiled again, and nothing is said.

const { Buffer } = require('node:buffer');
const fs = require('node:fs');
const path = require('node:path');
const { Script } = require('node:vm');
const { crc32 } = require('node:zlib');

const [head, tail] = ['(function (exports, require, module, __filename, __dirname) {', '\n})'].map((text) =>
  Buffer.from(text),
);

/**
 * What loads the modules of a folder, which require each other as `./NAME` and nothing else but Node's own.
 * @param {string} folder
 * @param {string | undefined} cache from {@link openCache}
 * @param {string} use the first file is cached once for each use: it has the code of all commands, and one command
 * needs little of it
 * @param {(name: string) => Buffer} [asset] returns an asset of the executable, which carries the files of the folder,
 * and in `compiled/` what V8 made of most; throws if there is none
 * @returns {{ load: (name: string) => any, keep: () => void }} `keep` writes what was compiled; call it at the end
 */
exports.loader = (folder, cache, use, asset) => {
  const read = asset ?? fs.readFileSync;
  const loaded = new Map();
  const fresh = [];
  const load = (name) => {
    const known = loaded.get(name);
    if (known !== undefined) return known.exports;
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

// Joined as bytes: of a joined string V8 would make a second copy, in the small heap that it starts with.
function wrapped(source) {
  return Buffer.concat([head, source, tail]);
}

function entryOf(name, source) {
  return [process.version, process.arch, name, crc32(source).toString(16)].join('-');
}

/**
 * Writes what V8 makes of all functions of a file, for an executable to carry. Nothing of the file is run, so the same file gives
 * the same bytes if V8 runs with `--predictable`.
 * @param {string} filename below the working directory, as the executable will name it
 * @param {string} folder
 */
exports.compile = (filename, folder) => {
  const { setFlagsFromString } = require('node:v8');
  const source = wrapped(fs.readFileSync(filename));
  setFlagsFromString('--no-lazy');
  const script = new Script(source.toString(), { filename, columnOffset: -head.length });
  // What is kept names the flags of this moment, and is refused by a V8 that has others.
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
    // A full disk, for example.
  }
}

/**
 * The folder of a version's cache, made if there is none; undefined if it cannot be made, or others may write to it.
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
    // The home of another user is left alone. A folder that others may write to can be exchanged with all that is in it.
    if (!isOurs(base) || !areSafe(path.dirname(fs.realpathSync(base)))) return undefined;
    const cacheHome = path.dirname(path.dirname(own));
    if (fs.existsSync(cacheHome) && !isOurs(cacheHome)) return undefined;
    if (!fs.existsSync(folder)) {
      if (isOurs(own))
        for (const old of fs.readdirSync(own)) fs.rmSync(path.join(own, old), { recursive: true });
      fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    }
    return [cacheHome, path.dirname(own), own, folder].every(isOurs) ? folder : undefined;
  } catch {
    return undefined;
  }
};

// Root's folders are safe, and so is a sticky one: others cannot rename what is ours in it.
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
