import { type MgwError, usageError } from '../errors.ts';
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

/** The job that a REF names, and its protocol; speech has no protocol. */
export interface FoundJob {
  job: Job;
  protocol?: Protocol;
}

/**
 * Finds the job that a REF names. The job must belong to the configured gateway. If a protocol is given, imports a
 * handle that is not in the ledger once the gateway has confirmed it (design 1).
 * @param words the command that takes the REF, such as `jobs wait`; the error about a different gateway suggests that
 * command
 * @throws MgwError('usage') if there is no such job, or the job belongs to a different gateway or protocol; exit 9, 3
 * or 6 if the gateway does not confirm the handle.
 */
export async function findJobHere(
  ref: string,
  deps: FlowDeps,
  words: readonly string[],
  protocol?: Protocol,
): Promise<FoundJob> {
  const recorded = await findJob(deps.ledger, ref, protocol?.name, deps.gateway);
  if (recorded === undefined) {
    if (protocol === undefined) return words[0] === 'video' ? unknownHandle(ref) : noSuchJob(ref);
    const configured = deps.withSettings(protocol);
    return { job: await importHandle(ref, configured, deps), protocol: configured };
  }
  checkGateway(recorded, deps.gateway, deps.settings, [...words, recorded.id]);
  if (protocol !== undefined && recorded.protocol !== protocol.name && recorded.protocol !== lostProtocol)
    throw otherProtocol(ref, recorded, words.at(-1) ?? '');
  if (recorded.protocol === 'tts') return { job: recorded };
  const configured = deps.withSettings(protocol ?? protocolOf(recorded));
  const job = await reconcile(deps.ledger, recorded, (reply, body) => configured.readSubmission(reply, body));
  return { job, protocol: configured };
}

/**
 * Returns the recorded job that a REF names, for a command that does not need a gateway. If a gateway is configured,
 * the job must belong to it.
 * @param wordsOf returns the typed command for a job, without `mgw`; the error about a different gateway suggests that
 * command
 * @param sendsKey whether the command may send the key
 * @throws MgwError('usage') if there is no such job, or the job belongs to a different gateway.
 */
export async function recordedJobHere(
  session: Pick<Session, 'ledger' | 'settings'>,
  ref: string,
  wordsOf: (job: Job) => readonly string[],
  sendsKey?: boolean,
): Promise<Job> {
  const [ledger, settings] = await Promise.all([session.ledger(), session.settings()]);
  const gateway = configuredGateway(settings);
  const job = await recordedJob(ledger, ref, gateway);
  const choice = sendsKey ? settings : { ...settings, key: undefined };
  if (gateway !== undefined) checkGateway(job, gateway, choice, wordsOf(job));
  return job;
}

function otherProtocol(ref: string, job: Job, verb: string): MgwError {
  const { id, protocol } = job;
  const text = `The protocol of ${ref} is ${protocol}.`;
  if (protocol === 'tts')
    return usageError(text, verb === 'fetch' ? ['mgw', 'jobs', verb, id] : showCommand(job));
  return usageError(text, ['mgw', 'video', protocol, verb, id]).with({ protocols: [protocol] });
}

// A handle alone does not identify its protocol.
function unknownHandle(ref: string): never {
  const text = `No such job: ${ref}. If it is a gateway handle, specify its protocol or --model.`;
  throw usageError(text).with({ protocols: protocolNames });
}

/**
 * Returns the protocol of a video job.
 * @throws MgwError('usage') if this version of mgw has no such protocol, or the job's record has lost the protocol.
 */
export function protocolOf(job: Job): Protocol {
  if (job.protocol !== lostProtocol) return protocolNamed(job.protocol);
  const text = `The record of ${job.id} is damaged and does not contain the protocol. Run "mgw video PROTOCOL fetch ${job.id}" with its protocol (${protocolNames.join(', ')}).`;
  throw usageError(text, showCommand(job)).with({ job });
}

/**
 * Refuses a job of a different gateway: the configured gateway does not know the job and would charge for it again.
 * @param words the typed command, without `mgw`
 * @throws MgwError('usage') with both URLs and the command that works.
 */
export function checkGateway(
  job: Job,
  gateway: string,
  settings: GatewayChoice,
  words: readonly string[],
): void {
  const { id, base_url: jobGateway } = job;
  if (jobGateway === '' || isSameGateway(jobGateway, gateway)) return;
  const text = `${id} was submitted to ${jobGateway}, but the configured gateway is ${gateway}.`;
  const flags = gatewayFlags(job, settings);
  if (flags !== undefined) throw usageError(text, ['mgw', ...flags, ...words]).with({ job });
  const profile = new URL(jobGateway).host.replace(/[^\w.-]+/g, '-').replace(/^-/, '');
  throw usageError(
    `${text} No profile has a key for ${jobGateway}: log in there first, then repeat the command with --profile ${profile}.`,
    ['mgw', 'auth', 'login', '--profile', profile, '--base-url', jobGateway],
  ).with({ job });
}

// Returns the flags that make a command use a job's gateway. Undefined if the key in use belongs to another gateway's
// profile and the job was not submitted with it: mgw must not send that key to the job's gateway.
function gatewayFlags({ base_url: jobGateway, record }: Job, settings: GatewayChoice): string[] | undefined {
  // The sandbox's name in records is not a URL.
  if (!URL.canParse(jobGateway)) return ['--sandbox'];
  const [profile] = Object.entries(settings.baseUrls).find(([, url]) => isSameGateway(url, jobGateway)) ?? [];
  const { key } = settings;
  if (profile === undefined && key?.source === 'profile' && accountOf(key.readIfValid()) !== record.account)
    return undefined;
  const url = new URL(jobGateway);
  const isPlainHttp = url.protocol === 'http:' && !isLoopbackHost(url.hostname);
  return [
    ...(profile === undefined || profile === settings.profile.value ? [] : ['--profile', profile]),
    ...['--base-url', jobGateway],
    ...(isPlainHttp ? ['--allow-http'] : []),
  ];
}
