import { usageError } from '../errors.ts';
import { lostProtocol, type Job } from '../job.ts';
import { noSuchJob, showCommand } from '../jobs/errors.ts';
import { isSameGateway } from '../jobs/order.ts';
import { reconcile } from '../jobs/reconcile.ts';
import { findJob, importHandle, recordedJob } from '../jobs/ref.ts';
import { isLoopbackHost } from '../exchange.ts';
import type { Protocol } from '../protocols/protocol.ts';
import { protocolNamed, protocolNames } from '../protocols/registry.ts';
import type { Session } from './session.ts';
import { accountOf, configuredGateway, type FlowDeps, type GatewayChoice } from './settings.ts';

/** A job that a REF names, and its protocol; speech has none. */
export interface FoundJob {
  job: Job;
  protocol?: Protocol;
}

/**
 * Finds the job of a REF, at the gateway that it was submitted to. With a protocol, a handle that the ledger has never
 * seen is imported once the gateway has confirmed it (design 1).
 * @param words the command that takes the REF, such as `jobs wait`; the error about another gateway suggests it
 * @throws MgwError('usage') if there is no such job, or it belongs to another gateway or protocol; exit 9, 3 or 6 if
 * the gateway does not confirm the handle.
 */
export async function findJobHere(
  ref: string,
  deps: FlowDeps,
  words: readonly string[],
  protocol?: Protocol,
): Promise<FoundJob> {
  const found = await findJob(deps.ledger, ref, protocol?.name, deps.gateway);
  if (found === undefined) {
    if (protocol === undefined) return words[0] === 'video' ? unknownHandle(ref) : noSuchJob(ref);
    const configured = deps.configured(protocol);
    return { job: await importHandle(ref, configured, deps), protocol: configured };
  }
  checkGateway(found, deps.gateway, deps.settings, [...words, found.id]);
  if (protocol !== undefined && found.protocol !== protocol.name && found.protocol !== lostProtocol)
    throw usageError(`${ref} is a job of ${found.protocol}.`, ['mgw', 'jobs', ...words.slice(-1), found.id]);
  if (found.protocol === 'tts') return { job: found };
  const configured = deps.configured(protocol ?? protocolOf(found));
  const job = await reconcile(deps.ledger, found, (reply, body) => configured.readSubmission(reply, body));
  return { job, protocol: configured };
}

/**
 * Returns the recorded job of a REF, for a command that needs no gateway. If one is configured, it must be the job's.
 * @param wordsOf returns the typed command for a job, without `mgw`; the error about another gateway suggests it
 * @param sendsKey whether the command may send the key
 * @throws MgwError('usage') if there is no such job, or it belongs to another gateway.
 */
export async function recordedJobHere(
  session: Pick<Session, 'ledger' | 'settings'>,
  ref: string,
  wordsOf: (job: Job) => readonly string[],
  sendsKey = false,
): Promise<Job> {
  const [ledger, settings] = await Promise.all([session.ledger(), session.settings()]);
  const gateway = configuredGateway(settings);
  const found = await recordedJob(ledger, ref, gateway);
  const choice = sendsKey ? settings : { ...settings, key: undefined };
  if (gateway !== undefined) checkGateway(found, gateway, choice, wordsOf(found));
  return found;
}

// A handle does not identify its protocol.
function unknownHandle(ref: string): never {
  const text = `No such job: ${ref}. If it is a handle of the gateway, give its protocol or --model.`;
  throw usageError(text).with({ protocols: protocolNames });
}

/**
 * Returns the protocol of a video job.
 * @throws MgwError('usage') if this mgw has no such protocol, or the record of the job has lost it.
 */
export function protocolOf(job: Job): Protocol {
  if (job.protocol !== lostProtocol) return protocolNamed(job.protocol);
  const text = `The record of ${job.id} is damaged and names no protocol. Run "mgw video PROTOCOL fetch ${job.id}" with its protocol (${protocolNames.join(', ')}).`;
  throw usageError(text, showCommand(job)).with({ job });
}

/**
 * Refuses a job of another gateway: the configured gateway does not know the job, and would charge for it.
 * @param words the command that was typed, without `mgw`
 * @throws MgwError('usage') naming both addresses, with the command that works.
 */
export function checkGateway(
  job: Job,
  gateway: string,
  settings: GatewayChoice,
  words: readonly string[],
): void {
  const { id, base_url: own } = job;
  if (own === '' || isSameGateway(own, gateway)) return;
  const text = `${id} was submitted to ${own}, and the configured gateway is ${gateway}.`;
  const flags = gatewayFlags(job, settings);
  if (flags !== undefined) throw usageError(text, ['mgw', ...flags, ...words]).with({ job });
  const profile = new URL(own).host.replace(/[^\w.-]+/g, '-').replace(/^-/, '');
  throw usageError(
    `${text} No profile has a key for ${own}: log in there first, then repeat the command with --profile ${profile}.`,
    ['mgw', 'auth', 'login', '--profile', profile, '--base-url', own],
  ).with({ job });
}

// Returns the flags with which a command uses the gateway of a job. Undefined if the key in use belongs to a profile of
// another gateway: it must not be sent to this one, unless it paid for the job there.
function gatewayFlags({ base_url: own, record }: Job, settings: GatewayChoice): string[] | undefined {
  // The sandbox's constant name is not a URL.
  if (!URL.canParse(own)) return ['--sandbox'];
  const [profile] = Object.entries(settings.baseUrls).find(([, url]) => isSameGateway(url, own)) ?? [];
  const { key } = settings;
  if (profile === undefined && key?.source === 'profile' && accountOf(key.readIfValid()) !== record.account)
    return undefined;
  const url = new URL(own);
  const isPlain = url.protocol === 'http:' && !isLoopbackHost(url.hostname);
  return [
    ...(profile === undefined || profile === settings.profile.value ? [] : ['--profile', profile]),
    ...['--base-url', own],
    ...(isPlain ? ['--allow-http'] : []),
  ];
}
