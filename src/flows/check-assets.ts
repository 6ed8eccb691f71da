import { maxTimerMs } from '../clock.ts';
import { exitCodes, messageOf, MgwError, toMgwError, usageError } from '../errors.ts';
import { bearer } from '../exchange.ts';
import { createClient } from '../http/client.ts';
import { follow } from '../http/download/follow.ts';
import { asSentence } from '../http/failures.ts';
import { TransportError } from '../http/transport-error.ts';
import type { JsonObject } from '../json.ts';
import { printableLine } from '../printable.ts';
import { maxAssetBytes } from '../protocols/flag.ts';
import { type AssetKind, assetsIn, isStoredName, type Protocol } from '../protocols/protocol.ts';
import type { Store } from '../store/store.ts';
import { version } from '../installation.ts';
import type { Session } from './session.ts';

/** An asset's type and size, as reported by its server. */
interface AssetDescription {
  mime: string;
  /** Size in bytes; undefined if the server does not report it. */
  bytes: number | undefined;
}

const maxBytes: Partial<Record<AssetKind, number>> = maxAssetBytes;

const defaultTimeoutMs = 20_000;
const connectTimeoutMs = 10_000;

/**
 * Checks each asset URL in a body with a request to the URL's server, free of charge (design 17).
 * @throws MgwError('usage') listing every asset that cannot be fetched or has the wrong type or size;
 * MgwError('unreachable') if the command's deadline passes.
 */
export async function checkAssetUrls(session: Session, protocol: Protocol, body: JsonObject): Promise<void> {
  const urls = protocol.inlineAssets
    ? []
    : assetsOf(protocol, body).filter(({ value }) => !isStoredName(value));
  await checkAll(urls, ({ value }) => describe(session, value));
}

/**
 * Checks each uploaded file of a body in the store. If the store is a program, requests the URL that the program
 * printed.
 * @param urls the files' URLs, by stored name
 * @param labels the files' flags and paths, by stored name
 * @throws MgwError('usage') as {@link checkAssetUrls} does; MgwError('store') if the store does not respond.
 */
export async function checkUploads(
  session: Session,
  protocol: Protocol,
  body: JsonObject,
  store: Store | undefined,
  urls: ReadonlyMap<string, string>,
  labels?: ReadonlyMap<string, string>,
): Promise<void> {
  const uploads = assetsOf(protocol, body).filter(({ value }) => urls.has(value));
  const describeUpload = ({ value }: Asset): Promise<AssetDescription> => {
    // The store names a frame by the hash of the frame's bytes, not by this name, so request the frame's URL.
    if (store?.describe !== undefined && !value.includes('#')) return store.describe(value);
    return describe(session, urls.get(value) ?? '');
  };
  await checkAll(uploads, describeUpload, labels);
}

interface Asset {
  value: string;
  kind: AssetKind;
}

function assetsOf(protocol: Protocol, body: JsonObject): Asset[] {
  return (protocol.assetFields ?? []).flatMap((field) =>
    assetsIn({ ...protocol, assetFields: [field] }, body).map((value) => ({
      value,
      kind: kindOf(field, value),
    })),
  );
}

// Protocol B lists assets of every kind in one field, so the file name determines the kind.
function kindOf(field: string, value: string): AssetKind {
  const name = field.startsWith('FileInfos') ? value.replace(/[?#].*$/s, '') : field;
  if (/audio|\.(mp3|wav|m4a|aac)$/i.test(name)) return 'audio';
  return /video|\.(mp4|mov|webm)$/i.test(name) ? 'video' : 'image';
}

async function checkAll(
  assets: readonly Asset[],
  describeAsset: (asset: Asset) => Promise<AssetDescription>,
  labels: ReadonlyMap<string, string> = new Map(),
): Promise<void> {
  const problems: string[] = [];
  for (const asset of assets) {
    const problem = await describeAsset(asset).then(
      (described) => problemOf(asset, described),
      (error: unknown) => {
        const assetError = toMgwError(error);
        if (
          /^(store|internal|unreachable)$/.test(assetError.code) ||
          assetError.exitCode >= exitCodes.interrupted
        )
          throw assetError;
        return assetError.message;
      },
    );
    const label = labels.get(asset.value) ?? `${asset.kind} ${displayUrl(asset.value)}`;
    if (problem !== undefined) problems.push(`${label}: ${problem}`);
  }
  if (problems.length > 0) throw usageError(problems.join('\n'));
}

function problemOf({ kind }: Asset, { mime, bytes }: AssetDescription): string | undefined {
  const [type = ''] = mime.toLowerCase().split(';');
  const isUnknownType = type === '' || /^(application|binary)\/octet-stream$/.test(type.trim());
  if (!isUnknownType && !type.trim().startsWith(`${kind}/`)) return `its type is ${printableLine(type, 80)}.`;
  const max = maxBytes[kind];
  if (bytes === 0) return 'it is empty.';
  if (max === undefined || bytes === undefined || bytes <= max) return undefined;
  return `it is ${(bytes / 2 ** 20).toFixed(1)} MiB; the limit is ${max / 2 ** 20} MiB.`;
}

// Tries HEAD, then GET for one byte: some servers reject HEAD, and a signature may cover only GET.
async function describe(session: Session, address: string): Promise<AssetDescription> {
  const { soft } = session.signals();
  const deadline = await session.deadline();
  const timeoutMs = (await session.settings()).requestTimeoutMs.value ?? defaultTimeoutMs;
  const url = new URL(address);
  const client = createClient({
    baseUrl: new URL(url.origin),
    key: '',
    userAgent: `mgw/${version}`,
    connectTimeoutMs,
  });
  try {
    const request = { method: 'HEAD', path: url.pathname + url.search, headers: {} } as const;
    const head = await client.exchange(request, { auth: bearer, timeoutMs, deadline, signal: soft });
    if (head.status === 200) return descriptionFrom(head.headers, head.headers['content-length']);
  } catch {
    // If the user interrupted mgw, the next request fails with the reason, because it uses the same signal.
  } finally {
    client.close();
  }
  const gateway = { baseUrl: url, key: '', auth: bearer, trustedOrigins: [], userAgent: `mgw/${version}` };
  const timeout = AbortSignal.timeout(Math.ceil(Math.min(timeoutMs, deadline.remainingMs(), maxTimerMs)));
  const signal = AbortSignal.any([soft, timeout]);
  const headers = { range: 'bytes=0-0' };
  const reply = await follow(
    { url: address, key: 'never' },
    { gateway, headers, connectTimeoutMs, signal, onHead: () => undefined },
  ).catch((error: unknown) => {
    soft.throwIfAborted();
    const lateText = 'The assets could not be checked within --timeout. Nothing was sent.';
    if (deadline.remainingMs() === 0) throw new MgwError('unreachable', lateText, { retry: 'safe' });
    if (!(error instanceof TransportError || error instanceof MgwError)) throw error;
    const reason = timeout.aborted ? `no response within ${timeoutMs / 1000} s` : messageOf(error);
    throw usageError(`it cannot be fetched from here: ${asSentence(reason)}`);
  });
  reply.message.destroy();
  if (reply.status === 206)
    return descriptionFrom(reply.headers, reply.headers['content-range']?.split('/')[1]);
  if (reply.status === 200) return descriptionFrom(reply.headers, reply.headers['content-length']);
  throw usageError(`it cannot be fetched: HTTP ${reply.status}.`);
}

function descriptionFrom(headers: Record<string, string>, length: string | undefined): AssetDescription {
  const bytes = Number(length ?? NaN);
  return { mime: headers['content-type'] ?? '', bytes: Number.isNaN(bytes) ? undefined : bytes };
}

// Returns the URL for messages, without its query, because the query may contain a signature.
function displayUrl(value: string): string {
  return printableLine(value.replace(/[?#].*$/s, '?…'), 200);
}
