import { usageError } from '../errors.ts';
import type { Exchange } from '../exchange.ts';
import type { JsonObject } from '../json.ts';
import { printableLine } from '../printable.ts';
import { type FlagValue, longName } from '../protocols/compose.ts';
import { assetKind, deniedAsset } from '../protocols/flag.ts';
import {
  assetsIn,
  isEarlierJob,
  isLocalPath,
  isStoredName,
  withAssets,
  type Protocol,
} from '../protocols/protocol.ts';
import { type Store, storedName } from '../store/store.ts';
import type { EarlierAsset } from './earlier-job.ts';
import type { Session } from './session.ts';

/** Reads a local file named by a flag. @throws MgwError('usage') if reading the file is not allowed or fails. */
export type ReadLocalFile = (path: string, flag: string) => Promise<Uint8Array>;

/** Videos of earlier jobs and their frames, keyed by the asset flag values that refer to them. */
export type EarlierAssets = ReadonlyMap<string, EarlierAsset>;

/** Reads a video's local files, by stored name. */
export type LocalFiles = ReadonlyMap<string, () => Promise<Uint8Array>>;

/** Flag values with local files replaced by stored names, and everything needed to upload these files. */
export interface NamedFiles {
  flags: Record<string, FlagValue>;
  files: LocalFiles;
  labels: ReadonlyMap<string, string>;
  findVideos: () => Promise<void>;
}

/**
 * Replaces local files in asset flag values with their names in the store, which are derived from the content. Uploads
 * nothing. Also returns `labels`, which maps the stored name of each file to its flag and path, and `findVideos`, a
 * function that finds the videos of earlier jobs or fetches missing ones.
 * @param inputs earlier jobs that the caller has resolved; other references to jobs are looked up in the ledger
 * @param model the model, if known; it determines the maximum file size
 * @param canFetch whether the video of an earlier job may be fetched if its hash is not recorded. Default: true
 * @throws MgwError('usage') if a file cannot be read, the flag does not accept the file, or no store is configured.
 */
export async function namedFiles(
  session: Session,
  protocol: Protocol,
  flagValues: Record<string, FlagValue>,
  read: ReadLocalFile,
  inputs: EarlierAssets = new Map(),
  model = '',
  canFetch = true,
): Promise<NamedFiles> {
  const flags = { ...flagValues };
  const files = new Map<string, () => Promise<Uint8Array>>();
  const labels = new Map<string, string>();
  const videos: EarlierAsset[] = [];
  const nameOf = async (path: string, flag: string): Promise<string> => {
    if (isEarlierJob(path)) {
      if (protocol.inlineAssets !== true && !(await session.hasStore()))
        throw noStoreError(flag, printableLine(path, 200), protocol);
      const { earlierAsset } = await import('./earlier-job.ts');
      const asset = inputs.get(path) ?? (await earlierAsset(session, path, flag, canFetch));
      videos.push(asset);
      files.set(asset.name, asset.read);
      labels.set(asset.name, `--${flag} ${printableLine(path, 200)}`);
      return asset.name;
    }
    if (!isLocalPath(path)) return path;
    const displayPath = printableLine(path, 200);
    const content = await read(path, flag);
    checkContent(content, displayPath, flag, protocol, model);
    if (!(await session.hasStore())) throw noStoreError(flag, displayPath, protocol);
    const name = storedName(path, content);
    labels.set(name, `--${flag} ${displayPath}`);
    files.set(name, async () => {
      const currentContent = await read(path, flag);
      if (storedName(path, currentContent) === name) return currentContent;
      throw usageError(`--${flag}: ${displayPath} changed while the command ran.`);
    });
    return name;
  };
  for (const flag of protocol.flags) {
    const name = longName(flag);
    const value = flags[name];
    if (flag.isAsset !== true) continue;
    if (typeof value === 'string') flags[name] = await nameOf(value, name);
    if (Array.isArray(value)) flags[name] = await Promise.all(value.map((path) => nameOf(path, name)));
  }
  const findVideos = async (): Promise<void> => {
    for (const { find } of videos) await find();
  };
  return { flags, files, labels, findVideos };
}

function checkContent(
  content: Uint8Array,
  shown: string,
  flag: string,
  protocol: Protocol,
  model: string,
): void {
  const kind = assetKind(flag);
  if (content.length === 0) throw usageError(`--${flag}: ${shown} is empty.`);
  const type = deniedAsset(content, kind);
  if (type !== undefined)
    throw usageError(`--${flag}: ${shown} is ${type}; ${kind === 'image' ? 'an image' : kind} is required.`);
  const max = protocol.maxAssetBytes?.(kind, model) ?? Infinity;
  if (content.length > max)
    throw usageError(
      `--${flag}: ${shown} is ${(content.length / 2 ** 20).toFixed(1)} MiB; ${printableLine(model, 100)} accepts at most ${max / 2 ** 20} MiB.`,
    );
}

function noStoreError(flag: string, path: string, { name }: Protocol): Error {
  return usageError(
    `--${flag}: ${path} is not a URL, and Protocol ${name.toUpperCase()} accepts only URLs. To let mgw upload it, configure a store: mgw config set store s3://BUCKET/PREFIX`,
    ['mgw', 'config', 'set', '--help'],
  );
}

/**
 * Returns a function that uploads a body's missing files and builds the request with their URLs. Undefined if the body
 * has no files to upload or check.
 * @param files this command's files; any other file must be in the store
 * @param options `checkAssets` first checks that the gateway can fetch each asset, by its status, type and size;
 * `labels` name the files in its messages
 */
export function uploadFor(
  session: Session,
  protocol: Protocol,
  body: JsonObject,
  files: LocalFiles,
  {
    endpoint,
    checkAssets = false,
    labels,
  }: {
    endpoint?: string | undefined;
    checkAssets?: boolean | undefined;
    labels?: ReadonlyMap<string, string>;
  } = {},
): (() => Promise<Exchange>) | undefined {
  const names = storedAssets(protocol, body);
  if (names.size === 0 && !checkAssets) return undefined;
  return async () => {
    const urls = new Map<string, string>();
    if (checkAssets) await (await import('./check-assets.ts')).checkAssetUrls(session, protocol, body);
    if (protocol.inlineAssets) for (const name of names) urls.set(name, await base64Of(name, files));
    else {
      const store = await session.store();
      for (const name of names) urls.set(name, await urlOf(store, name, files));
      await noteReachProblems(session, [...urls.values()]);
      if (checkAssets)
        await (await import('./check-assets.ts')).checkUploads(session, protocol, body, store, urls, labels);
    }
    const bodyWithUrls = withAssets(protocol, body, (value) => urls.get(value) ?? value);
    return protocol.submission(bodyWithUrls, { endpoint });
  };
}

function storedAssets(protocol: Protocol, body: JsonObject): Set<string> {
  return new Set(assetsIn(protocol, body).filter(isStoredName));
}

/**
 * Checks that each frame in a body is in `files`.
 * @throws MgwError('usage') if the body contains only a frame's name, not its job.
 */
export function checkFrames(protocol: Protocol, body: JsonObject, files: LocalFiles): void {
  for (const name of storedAssets(protocol, body)) if (name.includes('#')) frameReader(name, files);
}

async function noteReachProblems(session: Session, urls: readonly string[]): Promise<void> {
  const { reachProblem } = await import('./open-stores.ts');
  const { hostname: gateway } = (await session.gateway()).baseUrl;
  for (const host of new Set(urls.map((url) => new URL(url).hostname))) {
    const problem = reachProblem(host, gateway);
    if (problem !== undefined) session.note(`Uploaded, but ${problem}.`);
  }
}

async function urlOf(store: Store | undefined, name: string, files: LocalFiles): Promise<string> {
  if (store === undefined) throw usageError(`${name} is an uploaded file, but no store is configured.`);
  const read = files.get(name);
  const isFrame = name.includes('#');
  if (read === undefined && !isFrame) return store.url(name);
  // The name in the body identifies an earlier job's video. A frame of it, or another copy, has different bytes.
  const content = await frameReader(name, files)();
  const path = isFrame ? 'frame.png' : name;
  return store.url(storedName(path, content), () => Promise.resolve(content));
}

async function base64Of(name: string, files: LocalFiles): Promise<string> {
  return Buffer.from(await frameReader(name, files)()).toString('base64');
}

function frameReader(name: string, files: LocalFiles): () => Promise<Uint8Array> {
  const read = files.get(name);
  if (read !== undefined) return read;
  throw usageError(
    `${name} is a frame of an earlier job. Run the original command, which refers to that job, again.`,
  );
}
