import { createHash } from 'node:crypto';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { MgwError, exitCodes, messageOf } from '../errors.ts';
import { deadlineIn } from '../clock.ts';
import { bearer, type Exchange, type Failure, type Model, type Reply } from '../exchange.ts';
import { asSentence, withRetryDelay } from '../http/failures.ts';
import { queryTimeoutMs } from '../jobs/order.ts';
import { getModel, listModels, mergeById, readModels } from '../protocols/models.ts';
import type { Session } from './session.ts';
import type { Settings } from '../config/resolve.ts';
import { isObject, tryParseJson } from '../json.ts';
import { makeFolder } from '../files/make-folder.ts';
import { ledgerFolder } from './settings.ts';
import { TransportError } from '../http/transport-error.ts';
import type { ListingUse } from '../protocols/protocol.ts';

/** Limits tighter than the settings: the timeout of one call, in ms, and the number of retries. */
interface Limits {
  timeoutMs?: number;
  retries?: number;
  signal?: AbortSignal;
}

/** The maximum number of pages, and the maximum length of all pages in UTF-16 code units. */
const maxPages = 100;
const maxLength = 16 * 1024 * 1024;

/** The gateway's models; `isIncomplete` is set if some pages of the list were not fetched. */
export type ModelList = Model[] & { isIncomplete?: true };

/**
 * Fetches all models that the key can use, or one by its id (specification 2.7). Follows the pages of a list, and
 * prints a note if the list remains incomplete. Retries 429, 5xx and network errors with backoff.
 * @throws MgwError: exit 3 key refused, 4 no such model, 6 all retries failed.
 */
export async function fetchModels(session: Session, id?: string, limits: Limits = {}): Promise<ModelList> {
  const pagesDeadline = deadlineIn(limits.timeoutMs ?? Infinity, session.clock);
  let models: Model[] = [];
  let [length, page] = [0, ''];
  for (let pages = 1; ; pages += 1) {
    const reply = await fetchPage(session, id === undefined ? listModels(page) : getModel(id), limits);
    const result = readModels(reply);
    if ('failure' in result) {
      if (pages === 1) throw listError(result.failure);
      return incompleteList(session, models, page, ` ${asSentence(result.failure.message)}`);
    }
    const count = models.length;
    models = mergeById([...models, ...result.models]);
    length += reply.text.length;
    if (result.nextPage === undefined) break;
    page = result.nextPage;
    // A gateway that ignores the page in the query returns the same page again.
    const isStuck = models.length === count;
    if (isStuck || pages === maxPages || length > maxLength || pagesDeadline.remainingMs() === 0)
      return incompleteList(session, models, page);
  }
  // Failing to cache the model list must not fail the call.
  if (id === undefined) await rememberModels(await session.settings(), models).catch(() => undefined);
  return models;
}

function incompleteList(session: Session, models: Model[], page: string, reason = ''): ModelList {
  session.note(
    `The model list is incomplete.${reason} To see the next page: mgw api GET '/v1/models${page}'`,
  );
  return Object.assign(models, { isIncomplete: true } as const);
}

async function fetchPage(session: Session, request: Exchange, limits: Limits): Promise<Reply> {
  const { readWithRetries } = await import('../http/retry.ts');
  const [client, settings] = await Promise.all([session.client(), session.settings()]);
  const { signal = client.signal } = limits;
  const timeoutMs = Math.min(
    settings.requestTimeoutMs.value ?? queryTimeoutMs,
    limits.timeoutMs ?? Number.POSITIVE_INFINITY,
  );
  const retries = Math.min(settings.retries.value, limits.retries ?? Number.POSITIVE_INFINITY);
  // Use fewer retries than for a submission, so that the call fails soon if the gateway does not respond.
  const unsentRetries = settings.retries.source === 'default' ? Math.min(retries, 2) : retries;
  return readWithRetries(() => client.exchange(request, { auth: bearer, timeoutMs, signal }), {
    clock: session.clock,
    retries,
    unsentRetries,
    deadline: client.deadline,
    note: (text) => session.note(text),
    signal,
  });
}

function listError(failure: Failure): MgwError {
  const { code, message, requestId } = failure;
  return new MgwError(code, withRetryDelay(message, failure), {
    requestId,
    retry: code === 'auth' ? 'never' : 'safe',
    ...(code === 'not_found' && { next: ['mgw', 'doctor'] }),
  });
}

/** The cached members of a model. */
export type KnownModel = Pick<Model, 'id' | 'protocols' | 'model_versions'>;

/**
 * Caches the gateway's model list for completion, suggestions and protocol checks that send no request.
 * @throws a file system error if the cache cannot be written.
 */
export async function rememberModels(settings: Settings, models: readonly Model[]): Promise<void> {
  const path = cachePath(settings);
  const cachedModels = models.map(({ id, protocols, model_versions }): KnownModel => ({
    id,
    protocols,
    model_versions,
  }));
  const text = JSON.stringify({ models: cachedModels });
  // Usually the list has not changed, and no write is needed.
  if (readCache(path) === text) return;
  await makeFolder(dirname(path));
  writeFileSync(`${path}.${process.pid}`, text, { mode: 0o600 });
  renameSync(`${path}.${process.pid}`, path);
}

/** Returns the models in this gateway's last listing; empty if none was fetched. */
export function recallModels(settings: Settings): KnownModel[] {
  const cached = tryParseJson(readCache(cachePath(settings)));
  const models = isObject(cached) && Array.isArray(cached['models']) ? cached['models'] : [];
  return models.filter(isKnownModel);
}

// Synchronous: starting the thread pool takes longer than reading this small file.
function readCache(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function isKnownModel(value: unknown): value is KnownModel {
  const { id, protocols, model_versions: versions } = (value ?? {}) as Partial<KnownModel>;
  return typeof id === 'string' && Array.isArray(protocols) && Array.isArray(versions);
}

// Each gateway has its own cache file. The sandbox has its own folder.
function cachePath(settings: Settings): string {
  const gateway = settings.baseUrl?.value ?? '';
  const name = createHash('sha256').update(gateway).digest('hex').slice(0, 32);
  return join(ledgerFolder(settings), 'models', `${name}.json`);
}

/**
 * Returns the model list; undefined if it could not be fetched and is not needed.
 * @throws MgwError: exit 3 or 6 if it is needed and could not be fetched.
 */
export type Listing = (use: ListingUse) => Promise<ModelList | undefined>;

/**
 * Returns a function that fetches the model list once. If that fails, the function tries again only for another
 * purpose.
 */
export function oneListing(session: Session): Listing {
  const requests = new Map<ListingUse, Promise<ModelList | undefined>>();
  let listing: ModelList | undefined;
  return async (use) => {
    if (listing !== undefined) return listing;
    const request = requests.get(use) ?? listedModels(session, use);
    requests.set(use, request);
    return (listing = await request);
  };
}

/**
 * Fetches the model list. If only checks use the model list, waits only briefly.
 * @returns undefined if it could not be fetched and is not needed: the checks and the gateway then validate the body
 * @throws MgwError: exit 3 or 6 if it is needed and could not be fetched.
 */
export async function listedModels(session: Session, use: ListingUse): Promise<ModelList | undefined> {
  try {
    return await fetchModels(session, undefined, use === 'check' ? { timeoutMs: 10_000, retries: 1 } : {});
  } catch (error) {
    if (error instanceof MgwError && isFatal(error, use)) throw explain(error, use);
    session.note(`Could not fetch the model list: ${messageOf(error)}`);
    return undefined;
  }
}

// Checks do not require the model list. But after a permanent error, such as an invalid certificate, the submission
// would fail too.
function isFatal({ cause, code, exitCode }: MgwError, use: ListingUse): boolean {
  if (use !== 'check') return code === 'auth' || exitCode === exitCodes.unavailable;
  return cause instanceof TransportError && cause.isPermanent;
}

function explain(error: MgwError, use: ListingUse): MgwError {
  if (use === 'check' || error.code === 'auth') return error;
  const { code, message, requestId, cause } = error;
  const [subject, advice] =
    use === 'fill'
      ? ['missing field is', 'Set it with --model-version']
      : ['protocol of the model is', 'Specify it (mgw video a, b or c)'];
  const text = `The ${subject} taken from the model list, which could not be fetched: ${asSentence(message)} Nothing was sent. ${advice}, or run the command again.`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe', requestId, cause });
}
