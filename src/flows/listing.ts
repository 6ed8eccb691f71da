import { exitCodes, messageOf, MgwError } from '../errors.ts';
import { asSentence } from '../http/failures.ts';
import { TransportError } from '../http/transport-error.ts';
import type { Model } from '../exchange.ts';
import type { ListingUse } from '../protocols/protocol.ts';
import type { Session } from './session.ts';

/**
 * Returns the model listing; undefined if it could not be fetched and is not needed.
 * @throws MgwError: exit 3 or 6 if it is needed and could not be fetched.
 */
export type Listing = (use: ListingUse) => Promise<Model[] | undefined>;

/** Returns a listing that is fetched at most once. */
export function oneListing(session: Session): Listing {
  const asked = new Map<ListingUse, Promise<Model[] | undefined>>();
  let found: Model[] | undefined;
  return async (use) => {
    if (found !== undefined) return found;
    const answer = asked.get(use) ?? listedModels(session, use);
    asked.set(use, answer);
    return (found = await answer);
  };
}

/**
 * Fetches the model listing. A submission that does not need it waits only briefly.
 * @returns undefined if it could not be fetched and is not needed: the checks and the gateway judge the body
 * @throws MgwError: exit 3 or 6 if it is needed and could not be fetched.
 */
export async function listedModels(session: Session, use: ListingUse): Promise<Model[] | undefined> {
  const { fetchModels } = await import('./models.ts');
  try {
    return await fetchModels(session, undefined, use === 'check' ? { timeoutMs: 10_000, retries: 1 } : {});
  } catch (error) {
    if (error instanceof MgwError && isFatal(error, use)) throw explain(error, use);
    session.note(`Could not fetch the model list: ${messageOf(error)}`);
    return undefined;
  }
}

// A listing that only serves checks may be unavailable. With an invalid certificate the submission would fail too.
function isFatal({ cause, code, exitCode }: MgwError, use: ListingUse): boolean {
  if (use === 'fill') return code === 'auth' || exitCode === exitCodes.unavailable;
  return cause instanceof TransportError && cause.phase === 'unsent' && cause.reason === 'certificate';
}

function explain(error: MgwError, use: ListingUse): MgwError {
  if (use === 'check' || error.code === 'auth') return error;
  const { code, message, requestId, cause } = error;
  const text = `The missing field is taken from the model list, which could not be fetched: ${asSentence(message)} Nothing was sent. Give it (--model-version), or run this again.`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe', requestId, cause });
}
