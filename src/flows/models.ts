import { MgwError } from '../errors.ts';
import { bearer } from '../exchange.ts';
import { asSentence } from '../http/advice.ts';
import { retryHint } from '../http/retry-after.ts';
import { queryTimeoutMs } from '../jobs/deps.ts';
import { getModel, listModels, readModels } from '../protocols/models.ts';
import type { Model } from '../protocols/model.ts';
import { rememberModels } from './model-cache.ts';
import type { Session } from './session.ts';

/** Limits tighter than those of the settings: the time of one call in ms, and the number of retries. */
interface Limits {
  timeoutMs?: number;
  retries?: number;
  signal?: AbortSignal;
}

/**
 * Fetches the models of the key, or the one of an id (specification 2.7). 429, 5xx and network errors are retried with
 * backoff.
 * @throws MgwError: exit 3 key refused, 4 no such model, 6 reads kept failing.
 */
export async function fetchModels(session: Session, id?: string, limits: Limits = {}): Promise<Model[]> {
  const { readWithRetries } = await import('../http/retry.ts');
  const [client, settings] = await Promise.all([session.client(), session.settings()]);
  const request = id === undefined ? listModels() : getModel(id);
  const timeoutMs = Math.min(
    settings.requestTimeoutMs.value ?? queryTimeoutMs,
    limits.timeoutMs ?? Number.POSITIVE_INFINITY,
  );
  const retries = Math.min(settings.retries.value, limits.retries ?? Number.POSITIVE_INFINITY);
  // A listing that gets no answer fails soon; a submission is retried longer.
  const unsentRetries = settings.retries.source === 'default' ? 2 : retries;
  const reply = await readWithRetries(
    () =>
      client.exchange(request, {
        auth: bearer,
        timeoutMs,
        maxBytes: 64 * 1024 * 1024,
        signal: limits.signal,
      }),
    {
      clock: session.clock,
      retries,
      unsentRetries,
      deadline: client.deadline,
      note: (text) => session.note(text),
      signal: limits.signal,
    },
  );
  const read = readModels(reply);
  if ('models' in read) {
    // The caller has its models, whether they could be kept or not.
    if (id === undefined) await rememberModels(settings, read.models).catch(() => undefined);
    return read.models;
  }
  const { code, message, requestId, retryAfterMs } = read.failure;
  const said = retryAfterMs ? asSentence(message) + retryHint(read.failure) : message;
  throw new MgwError(code, said, { requestId, retry: code === 'auth' ? 'never' : 'safe' });
}
