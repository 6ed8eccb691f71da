import { counted } from '../../printable.ts';
import { lookup } from 'node:dns/promises';
import ipaddr from 'ipaddr.js';
import * as z from 'zod/mini';
import { requireBaseUrl, requireKey, type Settings } from '../../config/resolve.ts';
import { originText } from '../../config/layers.ts';
import { messageOf, MgwError, systemCode } from '../../errors.ts';
import { bearer, type Reply } from '../../exchange.ts';
import { openConnections, type Connections, type Socket } from '../../http/connections.ts';
import { decodeBody, readBounded } from '../../http/body.ts';
import { follow } from '../../http/download/follow.ts';
import { hostOf } from '../../http/reach.ts';
import { TransportError } from '../../http/transport-error.ts';
import { tryParseJson } from '../../json.ts';
import { redactor } from '../../redact.ts';
import type { StateUrl } from '../../state-url.ts';
import { listModels, readModels } from '../../protocols/models.ts';
import { version } from '../../installation.ts';
import type { Context } from '../context.ts';
import { attempt, fail, ok, skip, warn, type Check } from './local.ts';

const connectionHint = 'Check the address, the network, the proxy and the firewall.';
const certificateHint = 'For a private certificate authority, set NODE_EXTRA_CA_CERTS=FILE.';
const nameHint = 'The certificate is for a different host name: check the base URL.';
const connectTimeoutMs = 10_000;
const maxClockSkewMs = 5 * 60_000;
const certificateWarningMs = 14 * 86_400_000;

/**
 * Checks that a gateway is configured, can be reached, and accepts the key: address, proxy, DNS, TCP, TLS, key, clock.
 */
export async function checkNetwork(context: Context, settings: Settings): Promise<Check[]> {
  const deadline = await context.deadline();
  if (settings.sandbox.value) {
    const gateway = ok('gateway', 'the sandbox: offline and free of charge');
    return [gateway, ...(await checkKey(context, settings))];
  }
  const gateway = await attempt('gateway', 'To set the gateway: mgw auth login --base-url https://…', () => {
    const url = requireBaseUrl(settings);
    return ok('gateway', `${url.href} (${settings.baseUrl ? originText(settings.baseUrl) : ''})`);
  });
  if (gateway.status !== 'ok') return [gateway, skip('connection', 'no gateway'), skip('key', 'no gateway')];
  const url = requireBaseUrl(settings);
  const routeChecks = await checkRoute(url, Math.min(connectTimeoutMs, deadline.remainingMs()));
  const hasFailed = routeChecks.some(({ status }) => status === 'fail');
  const key = await attempt('key', 'To store a key: mgw auth login', () => {
    requireKey(settings);
    return ok('key', '');
  });
  if (key.status === 'fail') return [gateway, ...routeChecks, key];
  return [
    gateway,
    ...routeChecks,
    ...(hasFailed ? [skip('key', 'no connection')] : await checkKey(context, settings)),
  ];
}

async function checkRoute(url: URL, timeoutMs: number): Promise<Check[]> {
  const connections = await openConnections(url, { timeoutMs, maxConnections: 1 });
  const pendingConnection = tryConnection(connections);
  const { proxy, proxyProblem: cause } = connections;
  if (cause !== undefined) {
    await pendingConnection;
    const proxyError = new MgwError('config', `${cause.message}.`, { cause });
    return [fail('proxy', proxyError, 'Correct it, or add the host to NO_PROXY.')];
  }
  const hasHostName = proxy === '' && !ipaddr.isValid(hostOf(url));
  const dns = hasHostName ? [await checkDns(hostOf(url))] : [];
  const hasNoAddress = dns.some(({ status }) => status === 'fail');
  const connection = await pendingConnection;
  return [ok('proxy', proxy || 'none'), ...dns, hasNoAddress ? skip('connection', 'no address') : connection];
}

function checkDns(host: string): Promise<Check> {
  return attempt('dns', 'Check the base URL for typing errors, and check the DNS settings.', async () => {
    try {
      const addresses = await lookup(host, { all: true });
      return ok('dns', `${host} resolves to ${addresses.map(({ address }) => address).join(', ')}`);
    } catch (error) {
      throw new MgwError('unreachable', `${host} has no address (${systemCode(error) ?? messageOf(error)})`);
    }
  });
}

async function tryConnection(connections: Connections): Promise<Check> {
  const startedAt = performance.now();
  let socket: Socket;
  try {
    socket = await connections.connect();
  } catch (error) {
    const connectionError = new MgwError('unreachable', messageOf(error), { retry: 'safe', cause: error });
    return fail('connection', connectionError, connectionHintFor(error));
  }
  const duration = `${Math.round(performance.now() - startedAt)} ms`;
  try {
    return 'getPeerCertificate' in socket
      ? judgeTls(socket, duration)
      : ok('connection', `TCP in ${duration}, without TLS`);
  } finally {
    connections.destroy(new Error('the check has finished'));
  }
}

function judgeTls(socket: Extract<Socket, { getPeerCertificate: unknown }>, duration: string): Check {
  const expiresAt = Date.parse(socket.getPeerCertificate().valid_to);
  const detail = `TCP and ${socket.getProtocol() ?? 'TLS'} in ${duration}`;
  if (expiresAt - Date.now() > certificateWarningMs) return ok('connection', detail);
  return warn(
    'connection',
    `${detail}; the certificate expires on ${new Date(expiresAt).toISOString()}`,
    "Report the expiry date to the gateway's operator.",
  );
}

async function checkKey(context: Context, { key }: Settings): Promise<Check[]> {
  let reply: Reply;
  try {
    const client = await context.client();
    reply = await client.exchange(listModels(), { auth: bearer, timeoutMs: connectTimeoutMs * 3 });
  } catch (error) {
    const requestError = new MgwError('unreachable', messageOf(error), { retry: 'safe', cause: error });
    return [fail('key', requestError, 'The gateway did not respond to GET /v1/models.')];
  }
  // The gateway's error may quote the refused key.
  const hide = redactor([(await context.gateway()).key]);
  // A variable takes precedence over a stored key.
  const keyHint =
    key?.source === 'env'
      ? `Correct the key in ${key.name ?? 'the environment'}.`
      : 'To store a different key: mgw auth login';
  return [judgeListing(reply, hide, keyHint), checkClock(reply, context.clock.now())];
}

function judgeListing(reply: Reply, hide: (text: string) => string, keyHint: string): Check {
  const listing = readModels(reply);
  if ('failure' in listing) {
    const { code, message, requestId } = listing.failure;
    const hint = code === 'auth' ? keyHint : 'The message is the response to GET /v1/models.';
    const next = code === 'not_found' ? ['mgw', 'auth', 'login'] : undefined;
    return fail('key', new MgwError(code, hide(message), { requestId, next }), hint);
  }
  const count = listing.models.length;
  if (count === 0)
    return warn(
      'key',
      'the key is accepted, but cannot use any model',
      "Enable models for the key in the gateway's console.",
    );
  return ok('key', `accepted; ${counted(count, 'model')}`);
}

/** Compares this machine's clock with the `Date` of the gateway's response. */
export function checkClock(reply: Pick<Reply, 'headers'>, now: number): Check {
  const gatewayTime = Date.parse(reply.headers['date'] ?? '');
  if (Number.isNaN(gatewayTime)) return skip('clock', "the gateway's response has no Date header");
  const drift = now - gatewayTime;
  const seconds = Math.round(Math.abs(drift) / 1000);
  if (Math.abs(drift) <= maxClockSkewMs)
    return ok('clock', seconds < 2 ? 'agrees with the gateway' : `differs by ${seconds} s`);
  const direction = drift > 0 ? 'ahead of' : 'behind';
  return warn(
    'clock',
    `${seconds} s ${direction} the gateway`,
    'Set the clock: signed addresses and certificates depend on it.',
  );
}

const versionText = z
  .string()
  .check(z.maxLength(64), z.regex(/^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$/));
// A release's `mgw.json` and an npm package have `version`; a GitHub release has `tag_name`.
const release = z.union([z.object({ version: versionText }), z.object({ tag_name: versionText })]);
const maxReleaseBytes = 1024 * 1024;

/** Compares this version of mgw with the newest one at `update_url`, for `doctor --update`. Does not send the key. */
export function checkUpdate({ updateUrl: { value: address } }: Settings): Promise<Check> {
  const hint =
    'The URL must return JSON such as {"version": "1.2.3"}. To change it: mgw config set update_url URL';
  return attempt('update', hint, async () => {
    if (address === undefined) throw new MgwError('config', 'No update URL is configured.');
    const newest = await fetchNewestVersion(address);
    const difference = compareVersions(newest, version);
    if (difference === 0) return ok('update', `${version} is the newest version, according to ${address}`);
    if (difference < 0) return ok('update', `${version} is newer than ${newest}, the version at ${address}`);
    return warn(
      'update',
      `${newest} is available; you have ${version} (according to ${address})`,
      'Install it the same way as this version.',
    );
  });
}

async function fetchNewestVersion(address: string): Promise<string> {
  const gateway = {
    baseUrl: new URL(address),
    key: '',
    auth: bearer,
    trustedOrigins: [],
    userAgent: `mgw/${version}`,
  };
  const signal = AbortSignal.timeout(connectTimeoutMs);
  const options = { gateway, headers: {}, connectTimeoutMs, signal, onHead: () => undefined };
  const unreadableError = (problem: string, cause?: unknown): MgwError =>
    new MgwError('unreachable', `${address} cannot be read: ${problem}`, { retry: 'safe', cause });
  const reply = await follow({ url: address, key: 'never' }, options).catch((error: unknown) => {
    const isRefused = error instanceof MgwError && error.code === 'result_unavailable';
    const refusal = 'it redirects more than five times, or to a disallowed address';
    const problem = isRefused ? refusal : messageOf(error);
    throw unreadableError(
      signal.aborted ? `no response within ${connectTimeoutMs / 1000} s` : problem,
      error,
    );
  });
  const body = await readBounded(
    decodeBody(reply.message, reply.headers['content-encoding']),
    maxReleaseBytes,
  );
  reply.message.destroy();
  if (!body.complete) throw unreadableError('the response is incomplete, or longer than 1 MiB');
  const badReplyError = (problem: string): MgwError =>
    new MgwError('bad_reply', `${address} ${problem}`, { retry: 'safe' });
  if (reply.status !== 200) throw badReplyError(`responded with HTTP ${reply.status}`);
  const parsed = z.safeParse(release, tryParseJson(new TextDecoder().decode(body.bytes)));
  if (!parsed.success) throw badReplyError('returned no version');
  return ('version' in parsed.data ? parsed.data.version : parsed.data.tag_name).replace(/^v/, '');
}

// Compares versions by the rules of semantic versioning, except that pre-release parts are compared as one string.
function compareVersions(one: string, other: string): number {
  const [[core, pre], [otherCore, otherPre]] = [partsOf(one), partsOf(other)];
  if (core !== otherCore) return core.localeCompare(otherCore, 'en', { numeric: true });
  if (pre === '' || otherPre === '') return Number(pre === '') - Number(otherPre === '');
  return pre.localeCompare(otherPre, 'en', { numeric: true });
}

function partsOf(text: string): [core: string, pre: string] {
  const [, core = '', pre = ''] = /^([^+-]*)-?([^+]*)/.exec(text) ?? [];
  return [core, pre];
}

/** Returns advice on an error of the connection to the gateway. @param now in ms since 1970 */
export function connectionHintFor(error: unknown, now: number = Date.now()): string {
  if (!(error instanceof TransportError) || error.reason !== 'certificate') return connectionHint;
  const code = systemCode(error.cause) ?? '';
  if (/^(ERR_TLS_CERT_ALTNAME|HOSTNAME_MISMATCH)/.test(code)) return nameHint;
  if (!/^CERT_(HAS_EXPIRED|NOT_YET_VALID)$/.test(code)) return certificateHint;
  const date = new Date(now).toISOString().slice(0, 10);
  return `If this machine's date, ${date}, is correct, tell the gateway's operator about the certificate.`;
}

/**
 * Checks that the store for input files responds, and that the gateway can probably reach it. Uploads nothing.
 * Returns undefined if there is no store.
 */
export async function checkStore(
  context: Context,
  { storeUrl, sandbox }: Settings,
): Promise<Check | undefined> {
  const url = storeUrl.value;
  if (sandbox.value || url === undefined) return undefined;
  const hint = 'Correct the store and store.endpoint settings (mgw config set), and the AWS variables.';
  return attempt('store', hint, async () => {
    const { reachProblem } = await import('../../flows/open-stores.ts');
    const store = await context.objects();
    const probe = `${url.replace(/\/$/, '')}/mgw-doctor`;
    await store.checkFree(probe, true);
    const { host, hostname } = new URL(await store.address(probe));
    const problem = reachProblem(hostname, (await context.gateway()).baseUrl.hostname);
    if (problem === undefined) return ok('store', `${url} at ${host} responds`);
    return warn('store', `${url} responds, but ${problem}`, 'Use a store that the gateway can reach.');
  });
}

/** Checks that a shared ledger's database responds, has the tables, and stores data durably. */
export function checkDatabase(url: StateUrl, { clock }: Pick<Context, 'clock'>): Promise<Check> {
  const hint = 'mgw submits nothing until this is fixed. To create the tables: mgw state init';
  return attempt('database', hint, async () => {
    // Loads the PostgreSQL library only if there is a shared ledger.
    const { examineLedger } = await import('../../ledger/postgres/examine.ts');
    const { server, version, lagMs, tripMs, warnings } = await examineLedger(url, clock);
    const [first] = warnings;
    if (first !== undefined) return warn('database', first, 'To show all findings: mgw state check');
    const lag = `its clock ${(Math.abs(lagMs) / 1000).toFixed(1)} s ${lagMs < 0 ? 'ahead' : 'behind'}`;
    const detail = `PostgreSQL ${server.split(' ')[0] ?? ''}, table version ${version}, ${Math.round(tripMs)} ms per statement, ${lag}`;
    return ok('database', detail);
  });
}
