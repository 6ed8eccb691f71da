import { join } from 'node:path';
import type { Budget } from '../budget/budget.ts';
import type { BudgetKind } from '../budget/file-budget.ts';
import type { Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { GatewayClient } from '../http/client.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Database } from '../ledger/postgres/database.ts';
import type { PostgresLedger } from '../ledger/postgres/postgres-ledger.ts';
import type { Allowance } from '../payment/hold.ts';
import type { Signals } from '../payment/pay-once.ts';
import { redactor, secretRedactor } from '../redact.ts';
import type { Sandbox } from '../sandbox/server.ts';
import { version } from '../version.ts';
import type { FlowDeps } from './flow-deps.ts';
import { configured, ledgerFolder, sandboxFolder, sharedLedger } from './places.ts';
import type { Gateway } from './settings.ts';

/** What works on one gateway and one ledger, each part made when it is first asked for (the composition root). */
export interface Session {
  readonly clock: Clock;
  /** Says something to whoever watches; the key is taken out. */
  note(text: string): void;
  /** Takes the key out of a text, as soon as it is known: gateways quote the one that they refuse. */
  redact(text: string): string;
  settings(): Promise<Settings>;
  /** @throws MgwError('config') where no base URL or no key is configured. */
  gateway(): Promise<Gateway>;
  client(): Promise<GatewayClient>;
  ledger(): Promise<Ledger>;
  /** The database of a ledger that is shared, undefined for one in a folder. */
  database(): Promise<Database | undefined>;
  jobDeps(): Promise<FlowDeps>;
  /** A budget of this ledger, which is made where there is none. @throws MgwError('local_io') where it cannot be opened. */
  budget(kind: BudgetKind, name: string): Promise<Budget>;
  /** The budgets that whatever is paid for has to fit into: the standing one, where one is chosen. */
  allowances(): Promise<Allowance[]>;
  /** Ends what was opened, but for the ledger: idle connections, the embedded sandbox. */
  close(): Promise<void>;
  /** Ends the ledger, once the last is recorded: the others then know at once that this process is at nothing more. */
  closeLedger(): Promise<void>;
}

/** Whose session it is: where its settings come from, who is told, and who may interrupt it. */
export interface SessionOptions {
  clock: Clock;
  settings: () => Promise<Settings>;
  note: (text: string) => void;
  /** Told of each request and of the head of its answer, secrets taken out. */
  trace?: ((line: string) => void) | undefined;
  signals: () => Signals;
  /** Puts something around the client, such as what shows its calls. */
  around?: ((client: GatewayClient) => GatewayClient) | undefined;
}

type Closer = () => Promise<void> | void;

/** Opens a session; nothing is read or opened before it is asked for. */
export function openSession(options: SessionOptions): Session {
  const closers: Closer[] = [];
  let redact = (text: string): string => text;
  let password = '';
  const settings = once(async () => {
    const resolved = await options.settings();
    password = sharedLedger(resolved)?.password ?? '';
    redact = secretRedactor([password]);
    return resolved;
  });
  const gateway = once(async () => {
    const resolved = await settings();
    const found = await (resolved.sandbox.value ? playing(resolved) : real(resolved));
    redact = secretRedactor([found.key, password]);
    return found;
  });
  const playing = async (resolved: Settings): Promise<Gateway> => {
    const [{ sandboxGateway }, sandbox] = await Promise.all([import('./settings.ts'), playGateway(resolved)]);
    closers.push(() => sandbox.close());
    return sandboxGateway(resolved, sandbox);
  };
  const client = once(async () => {
    const opened = await clientOf(await gateway(), options.trace);
    closers.push(() => opened.close());
    return options.around?.(opened) ?? opened;
  });
  let opened: Ledger | undefined;
  const shared = once(async () => sharedLedgerOf(await settings(), options.clock));
  const ledger = once(
    async () => (opened = (await shared()) ?? (await ledgerOf(await settings(), options.clock))),
  );
  const session: Session = {
    clock: options.clock,
    note: (text) => options.note(redact(text)),
    redact: (text) => redact(text),
    settings,
    gateway,
    client,
    ledger,
    database: async () => {
      await ledger();
      return (await shared())?.database;
    },
    jobDeps: once(() => jobDepsOf(session, options.signals())),
    budget: async (kind, name) => {
      const { openSessionBudget } = await import('./budgets.ts');
      const budget = await openSessionBudget(session, kind, name);
      closers.push(() => budget.close());
      return budget;
    },
    allowances: once(() => allowancesOf(session)),
    close: async () => {
      for (const close of closers.splice(0).reverse()) await close();
    },
    closeLedger: async () => opened?.close(),
  };
  return session;
}

async function clientOf({ baseUrl, key }: Gateway, trace: SessionOptions['trace']): Promise<GatewayClient> {
  const [{ createClient }, { redactingClient }] = await Promise.all([
    import('../http/client.ts'),
    import('../http/redacting-client.ts'),
  ]);
  const redact = redactor([key]);
  const opened = createClient({
    baseUrl,
    key,
    userAgent: `mgw/${version}`,
    trace: trace && ((line) => trace(redact(line))),
  });
  // A short key stands in answers by chance: taking it out would break them.
  return key.length < 8 ? opened : redactingClient(opened, secretRedactor([key]));
}

async function ledgerOf(settings: Settings, clock: Clock): Promise<Ledger> {
  const { openFileLedger } = await import('../ledger/file-ledger.ts');
  return openFileLedger(ledgerFolder(settings), () => clock.now());
}

// Undefined where the ledger is that of a folder.
async function sharedLedgerOf(settings: Settings, clock: Clock): Promise<PostgresLedger | undefined> {
  const url = sharedLedger(settings);
  if (url === undefined) return undefined;
  const { openPostgresLedger } = await import('../ledger/postgres/postgres-ledger.ts');
  // Play money needs no second thought about where it is.
  return openPostgresLedger(url, {
    stateDir: settings.stateDir.value,
    clock,
    create: settings.sandbox.value,
  });
}

async function real(resolved: Settings): Promise<Gateway> {
  return (await import('./settings.ts')).realGateway(resolved);
}

async function jobDepsOf(session: Session, signals: Signals): Promise<FlowDeps> {
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
    key: gateway.key,
    account: accountOf(gateway.key),
    pollIntervalMs: gateway.pollIntervalMs,
    trustedOrigins: settings.trustedOrigins.value,
    configured: (protocol) => configured(protocol, settings),
    openBudget: (kind, name) => session.budget(kind, name),
    redact: secretRedactor([gateway.key]),
    note: (text) => session.note(text),
    signals,
    userAgent: `mgw/${version}`,
    requestTimeoutMs: settings.requestTimeoutMs.value,
    retries: settings.retries.value,
    retry5xx: settings.submitRetry5xx.value,
  };
}

async function allowancesOf(session: Session): Promise<Allowance[]> {
  const { standingAllowance } = await import('./budgets.ts');
  return standingAllowance(await session.settings(), (name) => session.budget('standing', name));
}

async function playGateway(settings: Settings): Promise<Pick<Sandbox, 'url' | 'key' | 'close'>> {
  const { openSandbox } = await import('./open-sandbox.ts');
  return openSandbox(settings, join(sandboxFolder(settings), 'gateway'));
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
