import { exitCodes, messageOf, MgwError, usageError } from '../errors.ts';
import { asSentence } from '../http/advice.ts';
import { TransportError } from '../http/transport-error.ts';
import { at, type JsonObject } from '../json.ts';
import { compose, longName, type ComposeInput } from '../protocols/compose.ts';
import type { Model } from '../protocols/models.ts';
import type { Checks, ListingUse, Protocol, Violation } from '../protocols/protocol.ts';
import { violationMessage } from '../protocols/violations.ts';
import type { Session } from './session.ts';

/** What a body is made of, and how closely it is looked at. */
export interface BodyParts extends Omit<ComposeInput, 'defaults'> {
  /** False skips the local checks. */
  check?: boolean | undefined;
  /** True where nothing is sent: then nothing is asked that is not needed. */
  dryRun?: boolean | undefined;
}

/** The body of a submission, as it is sent and as it was asked for. */
export interface SubmissionBody {
  /** Completed from the configured defaults and the listing: what is sent. */
  body: JsonObject;
  /** What the person gave, under the fields' one name: what tells whether two commands ask for the same. */
  asked: JsonObject;
  /** What the person should know about the body. */
  advice: string[];
}

/**
 * The model listing, where it can be had; a listing that is needed and cannot be had ends the command.
 * @throws MgwError: exit 3 or 6.
 */
export type Listing = (use: ListingUse) => Promise<Model[] | undefined>;

/**
 * The body of a submission from its parts and the configured defaults, completed from the listing, and checked.
 * @throws MgwError('usage') naming everything that is wrong, before anything is sent.
 */
export async function composeVideo(
  session: Session,
  protocol: Protocol,
  parts: BodyParts,
  listing: Listing = (use) => listedModels(session, use),
): Promise<SubmissionBody> {
  const { body: given, flags, set, check: isChecked = true } = parts;
  const input = { body: given, flags, set };
  const asked = protocol.normalise(compose(protocol, input));
  const settings = await session.settings();
  const defaults = settings.defaultsFor(protocol.name, protocol.modelOf(asked) ?? '');
  const hasDefaults = Object.keys(known(protocol, defaults)).length > 0;
  const composed = hasDefaults ? protocol.normalise(compose(protocol, { ...input, defaults })) : asked;
  const checks = await protocol.checks();
  const mayFill = protocol.needsListing?.(composed) === 'fill';
  if (isChecked) refuse(faultsOfItsOwn(checks, composed, mayFill), protocol, composed);
  const body = await completed(session, protocol, composed, parts, listing);
  if (isChecked && (mayFill || body !== composed)) refuse(checks.check(body), protocol, body);
  return { body, asked, advice: checks.advise(body) };
}

function refuse(violations: Violation[], protocol: Protocol, body: JsonObject): void {
  if (violations.length > 0) throw usageError(violationMessage(violations, protocol.modelOf(body)));
}

// What no listing can mend is said before the gateway is asked for one; a field that is missing may be filled in.
function faultsOfItsOwn(checks: Checks, body: JsonObject, mayFill: boolean): Violation[] {
  return checks.check(body).filter(({ field }) => !mayFill || at(body, field) !== undefined);
}

// Nothing is asked of the gateway that is not needed: a dry run and --no-check only want what the body lacks.
async function completed(
  session: Session,
  protocol: Protocol,
  body: JsonObject,
  { check = true, dryRun = false }: BodyParts,
  listing: Listing,
): Promise<JsonObject> {
  const use = protocol.needsListing?.(body);
  if (use === undefined || (use === 'check' && (dryRun || !check))) return body;
  const models = await listing(use);
  if (models === undefined) return body;
  try {
    return protocol.complete?.(body, models) ?? body;
  } catch (error) {
    if (check) throw error;
    session.note(`Not completed from the model listing: ${messageOf(error)}`);
    return body;
  }
}

// A listing that merely judges may be away, but where the certificate is wrong the submission would fare no better.
function endsIt({ cause, code, exitCode }: MgwError, use: ListingUse): boolean {
  if (use === 'fill') return code === 'auth' || exitCode === exitCodes.unavailable;
  return cause instanceof TransportError && cause.phase === 'unsent' && cause.reason === 'certificate';
}

function whyNeeded(error: MgwError, use: ListingUse): MgwError {
  if (use === 'check' || error.code === 'auth') return error;
  const { code, message, requestId, cause } = error;
  const text = `What is left out comes from the model listing, which cannot be had: ${asSentence(message)} Give it (--model-version), or run this again.`;
  return new MgwError(code, text, { exit: 'unavailable', retry: 'safe', requestId, cause });
}

function known(protocol: Protocol, defaults: Record<string, unknown>): Record<string, unknown> {
  const names = new Set(protocol.flags.map(longName));
  const stray = Object.keys(defaults).find((name) => !names.has(name));
  if (stray !== undefined) throw usageError(`defaults.video.${protocol.name}: there is no flag --${stray}.`);
  return defaults;
}

// A listing that cannot be had decides nothing: the checks, and then the gateway, judge the body as it is, and a
// submission that could go without it does not wait for it long. One that is needed and merely away for now ends the
// command with exit 6.
export async function listedModels(session: Session, use: ListingUse): Promise<Model[] | undefined> {
  const { fetchModels } = await import('./models.ts');
  try {
    return await fetchModels(session, undefined, use === 'check' ? { timeoutMs: 10_000, retries: 1 } : {});
  } catch (error) {
    if (error instanceof MgwError && endsIt(error, use)) throw whyNeeded(error, use);
    session.note(`The model listing cannot be had: ${messageOf(error)}`);
    return undefined;
  }
}
