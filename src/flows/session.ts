import { join } from 'node:path';
import type { Budget, BudgetKind } from '../budget/budget.ts';
import { deadlineIn, type Clock, type Deadline } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { GatewayClient } from '../http/client.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import type { PostgresLedger } from '../ledger/postgres/postgres-ledger.ts';
import type { Allowance } from '../payment/reserve.ts';
import type { Signals } from '../payment/pay-once.ts';
import { redactor, secretRedactor, Secrets, minSecretLength } from '../redact.ts';
import type { ObjectStore } from '../store/s3-store.ts';
import type { Store } from '../store/store.ts';
import { version } from '../installation.ts';
import {
  type FlowDeps,
  withSettings,
  ledgerFolder,
  sandboxFolder,
  sharedLedger,
  type Gateway,
} from './settings.ts';

/** The composition root: a gateway, a ledger and the parts that use them. Each part is created on first use. */
export interface Session {
  readonly clock: Clock;
  /** Prints a note for the user, with the key removed. */
  note(text: string): void;
  /** Removes the key from a string once the key is known, because gateways quote a key that they refuse. */
  redact(text: string): string;
  /** Reads the key, even from a file, so that {@link redact} removes it. For commands that do not use a gateway. */
  hideKey(): Promise<void>;
  settings(): Promise<Settings>;
  /** Returns the gateway. @throws MgwError('config') if no base URL or no key is configured. */
  gateway(): Promise<Gateway>;
  client(): Promise<GatewayClient>;
  /**
   * Returns the whole command's deadline, which starts with the first call. After that call, the deadline applies to
   * every request by the client, in any phase.
   */
  deadline(): Promise<Deadline>;
  ledger(): Promise<Ledger>;
  /** The database of a shared ledger; undefined for a ledger in a folder. */
  database(): Promise<Database | undefined>;
  jobDeps(): Promise<FlowDeps>;
  checkFile?: FlowDeps['checkFile'];
  /** The signals that stop the process. */
  signals(): Signals;
  /** Opens a budget in this ledger, creating it if needed. @throws MgwError('local_io') if it cannot be opened. */
  budget(kind: BudgetKind, name: string): Promise<Budget>;
  /** The budgets that limit every payment: the standing budget, if one is chosen. */
  allowances(): Promise<Allowance[]>;
  /** Whether local files can be uploaded. */
  hasStore(): Promise<boolean>;
  /** Opens the store for input files; undefined if there is none. @throws MgwError('config') if it cannot be used. */
  store(): Promise<Store | undefined>;
  /** Opens the store for results. */
  objects(): Promise<ObjectStore>;
  /** Closes the connections and the embedded sandbox, but not the ledger. */
  close(): Promise<void>;
  /** Closes the ledger after its last write. Other processes then see immediately that this process has finished. */
  closeLedger(): Promise<void>;
}

/** Options for a session. */
export interface SessionOptions {
  clock: Clock;
  settings: () => Promise<Settings>;
  note: (text: string) => void;
  /** Called with each request and the head of its response, with secrets removed. */
  trace?: ((line: string) => void) | undefined;
  signals: () => Signals;
  /** The command's start time, in ms since 1970, if the session serves one command. */
  startedAt?: number | undefined;
  /** Wraps the client, for example to display its calls. */
  wrapClient?: ((client: GatewayClient) => GatewayClient) | undefined;
}

type Closer = () => Promise<void> | void;

/** Opens a session. Nothing is read or opened until first use. */
export function openSession(options: SessionOptions): Session {
  const closers: Closer[] = [];
  const secrets = new Secrets();
  const readSettings = (): Promise<Settings> => settingsOf(options, secrets);
  let settings = once(readSettings);
  const gateway = once(async () => {
    const resolved = await settings();
    const openGateway = await gatewayOf(resolved, closers).catch((error: unknown) => {
      // The user may add the missing setting before the next call. No payment is possible without a gateway.
      settings = readSettings;
      throw error;
    });
    settings = () => Promise.resolve(resolved);
    // Redact the configured key in the sandbox too, because a prompt may contain it by mistake.
    secrets.add(openGateway.key, resolved.key?.readIfValid());
    return openGateway;
  });
  let deadline: Deadline | undefined;
  const client = once(async () => {
    const gatewayClient = await clientOf(await gateway(), options.trace);
    closers.push(() => gatewayClient.close());
    const { withDeadline } = await import('../http/client.ts');
    const limited = withDeadline(gatewayClient, { remainingMs: () => deadline?.remainingMs() ?? Infinity });
    return options.wrapClient?.(limited) ?? limited;
  });
  let current: Ledger | undefined;
  let signals: Signals | undefined;
  const postgresLedger = once(async () => sharedLedgerOf(await settings(), options.clock, options.note));
  const ledger = once(
    async () => (current = (await postgresLedger()) ?? (await ledgerOf(await settings(), options.clock))),
  );
  const session: Session = {
    clock: options.clock,
    note: (text) => options.note(secrets.redact(text)),
    redact: (text) => secrets.redact(text),
    hideKey: async () => secrets.add((await settings()).key?.readIfValid()),
    settings: () => settings(),
    gateway,
    client,
    deadline: once(async () => (deadline = deadlineIn((await settings()).timeoutMs.value, options.clock))),
    ledger,
    database: async () => {
      await ledger();
      return (await postgresLedger())?.database;
    },
    jobDeps: once(() => jobDepsOf(session, options)),
    signals: () => (signals ??= options.signals()),
    budget: async (kind, name) => {
      const { openSessionBudget } = await import('./budgets.ts');
      const budget = await openSessionBudget(session, kind, name);
      closers.push(() => budget.close());
      return budget;
    },
    allowances: once(async () => (await import('./budgets.ts')).configuredAllowance(session)),
    ...storeParts(() => session, closers),
    close: () => closeAll(closers),
    closeLedger: async () => current?.close(),
  };
  return session;
}

/** Returns a transfer's deadline: the timeout from now, or the command's deadline if that is earlier. */
export async function transferDeadline(session: Session): Promise<Deadline> {
  const [{ timeoutMs }, client] = await Promise.all([session.settings(), session.client()]);
  const transfer = deadlineIn(timeoutMs.value, session.clock);
  return { remainingMs: () => Math.min(client.deadline?.remainingMs() ?? Infinity, transfer.remainingMs()) };
}

/** Returns one call's session: its requests end at `deadline` or an interruption. It closes only its own parts. */
export function sessionOfCall(session: Session, deadline: Deadline, signals: Signals): Session {
  const closers: Closer[] = [];
  const ofCall: Session = {
    ...session,
    client: async () =>
      (await import('../http/client.ts')).withDeadline(await session.client(), deadline, signals.soft),
    deadline: () => Promise.resolve(deadline),
    signals: () => signals,
    budget: async (kind, name) => {
      const budget = await session.budget(kind, name);
      closers.push(() => budget.close());
      return budget;
    },
    ...storeParts(() => ofCall, closers),
    close: () => closeAll(closers),
  };
  return ofCall;
}

async function closeAll(closers: Closer[]): Promise<void> {
  for (const close of closers.splice(0).reverse()) await close();
}

async function settingsOf(options: SessionOptions, secrets: Secrets): Promise<Settings> {
  const settings = await options.settings();
  secrets.add(sharedLedger(settings)?.password, keyAtHand(settings));
  return settings;
}

// Returns the key if it can be read without blocking: most commands need no key, and a key file may be a pipe.
function keyAtHand({ key }: Settings): string {
  const text = key?.readAtHand() ?? '';
  return text.length < minSecretLength ? '' : text;
}

async function gatewayOf(settings: Settings, closers: Closer[]): Promise<Gateway> {
  const { realGateway, sandboxGateway } = await import('./settings.ts');
  if (!settings.sandbox.value) return realGateway(settings);
  const { openSandbox } = await import('./open-sandbox.ts');
  const sandbox = await openSandbox(settings, join(sandboxFolder(settings), 'gateway'));
  closers.push(() => sandbox.close());
  return sandboxGateway(settings, sandbox);
}

async function clientOf({ baseUrl, key }: Gateway, trace: SessionOptions['trace']): Promise<GatewayClient> {
  const [{ createClient }, { redactingClient }] = await Promise.all([
    import('../http/client.ts'),
    import('../http/redacting-client.ts'),
  ]);
  const redact = redactor([key]);
  const client = createClient({
    baseUrl,
    key,
    userAgent: `mgw/${version}`,
    trace: trace && ((line) => trace(redact(line))),
  });
  // A short key may occur in responses by chance, and removing it would break them.
  return key.length < minSecretLength ? client : redactingClient(client, secretRedactor([key]));
}

async function ledgerOf(settings: Settings, clock: Clock): Promise<Ledger> {
  return (await import('../ledger/file-ledger.ts')).openFileLedger(ledgerFolder(settings), () => clock.now());
}

// Returns undefined if the ledger is a folder.
async function sharedLedgerOf(
  settings: Settings,
  clock: Clock,
  note: Session['note'],
): Promise<PostgresLedger | undefined> {
  const url = sharedLedger(settings);
  if (url === undefined) return undefined;
  const [{ openPostgresLedger }, { tlsWarning }] = await Promise.all([
    import('../ledger/postgres/postgres-ledger.ts'),
    import('../ledger/postgres/tls.ts'),
  ]);
  const warning = tlsWarning(url);
  if (warning !== undefined) note(warning);
  // The sandbox's ledger is created without `state init`.
  return openPostgresLedger(url, {
    stateDir: settings.stateDir.value,
    clock,
    create: settings.sandbox.value,
  });
}

async function jobDepsOf(session: Session, { startedAt }: SessionOptions): Promise<FlowDeps> {
  const [{ accountOf }, settings, gateway, ledger, client] = await Promise.all([
    import('./settings.ts'),
    session.settings(),
    session.gateway(),
    session.ledger(),
    session.client(),
  ]);
  return {
    ledger,
    priceOf: async (order) => (await import('./prices.ts')).priceOf(order, settings),
    allowances: () => session.allowances(),
    client,
    clock: session.clock,
    lease: () => ledger.lease(),
    gateway: gateway.name,
    settings,
    key: gateway.key,
    account: accountOf(gateway.key),
    pollIntervalMs: gateway.pollIntervalMs,
    trustedOrigins: settings.trustedOrigins.value,
    withSettings: (protocol) => withSettings(protocol, settings),
    objects: () => session.objects(),
    uploadFolder: join(ledgerFolder(settings), 'uploads'),
    openBudget: (kind, name) => session.budget(kind, name),
    redact: (text) => session.redact(text),
    note: (text) => session.note(text),
    signals: session.signals(),
    userAgent: `mgw/${version}`,
    startedAt,
    requestTimeoutMs: settings.requestTimeoutMs.value,
    retries: settings.retries.value,
    retry5xx: settings.submitRetry5xx.value,
  };
}

function storeParts(
  session: () => Session,
  closers: Closer[],
): Pick<Session, 'hasStore' | 'store' | 'objects'> {
  const withCloser = async <T extends Store | ObjectStore | undefined>(opening: Promise<T>): Promise<T> => {
    const store = await opening;
    if (store !== undefined) closers.push(() => store.close());
    return store;
  };
  return {
    hasStore: async () => {
      const { sandbox, storeUrl, storeCommand } = await session().settings();
      return sandbox.value || storeUrl.value !== undefined || storeCommand.value !== undefined;
    },
    store: once(async () => withCloser((await import('./open-stores.ts')).openInputs(session()))),
    objects: once(async () => withCloser((await import('./open-stores.ts')).openObjects(session()))),
  };
}

// Caches the result of `make`, but not a failure: in a long-running server, the next call may succeed.
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let cached: Promise<T> | undefined;
  const dropFailure = (error: unknown): never => {
    cached = undefined;
    throw error;
  };
  return () => (cached ??= make().catch(dropFailure));
}
