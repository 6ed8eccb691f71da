import { join } from 'node:path';
import type { Budget } from '../budget/budget.ts';
import type { BudgetKind } from '../budget/open-budget.ts';
import { systemClock, type Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { GatewayClient } from '../http/client.ts';
import type { JobDeps } from '../jobs/deps.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { currentOwner } from '../ledger/owner.ts';
import type { Allowance } from '../payment/hold.ts';
import { redactor, secretRedactor } from '../redact.ts';
import type { Sandbox } from '../sandbox/server.ts';
import type { Gateway } from './gateway.ts';
import type { Globals } from './globals.ts';
import type { Io } from './io.ts';
import { createProgress } from './output/create-progress.ts';
import type { Progress } from './output/progress.ts';
import { interruptions } from './signals.ts';
import { version } from './version.ts';

/** Everything a command works with, made when it is first asked for (the composition root). */
export interface Context {
  readonly io: Io;
  readonly clock: Clock;
  readonly globals: Globals;
  readonly progress: Progress;
  /** Takes the key out of a text, as soon as it is known: gateways quote the one that they refuse. */
  redact(text: string): string;
  settings(): Promise<Settings>;
  /** @throws MgwError('config') where no base URL or no key is configured. */
  gateway(): Promise<Gateway>;
  client(): Promise<GatewayClient>;
  ledger(): Promise<Ledger>;
  jobDeps(): Promise<JobDeps>;
  /** A budget of this ledger, which is made where there is none. @throws MgwError('local_io') where it cannot be opened. */
  budget(kind: BudgetKind, name: string): Promise<Budget>;
  /** The budgets that whatever is paid for has to fit into: the standing one, where one is chosen. */
  allowances(): Promise<Allowance[]>;
  /** Ends what was opened: idle connections, the embedded sandbox. */
  close(): Promise<void>;
}

/** The sandbox's constant name in the records: its port changes from run to run. */
export const sandboxName = 'sandbox';

type Closer = () => Promise<void> | void;

/** Builds the context of one run; nothing is read or opened before it is asked for. */
export function createContext(io: Io, globals: Globals): Context {
  const clock = io.clock ?? systemClock;
  const closers: Closer[] = [];
  let redact = (text: string): string => text;
  const bare = createProgress({
    stderr: io.stderr,
    env: io.env,
    quiet: globals.quiet ?? false,
    color: globals.color !== false && !io.env['NO_COLOR'],
    clock,
  });
  const progress: Progress = { ...bare, note: (text) => bare.note(redact(text)) };
  const settings = once(async () => (await import('./settings.ts')).loadSettings(globals, io.env));
  const gateway = once(async () => {
    const resolved = await settings();
    const found = await (resolved.sandbox.value ? playing(resolved) : real(resolved));
    redact = secretRedactor([found.key]);
    return found;
  });
  const playing = async (resolved: Settings): Promise<Gateway> => {
    const sandbox = await playGateway(resolved);
    closers.push(() => sandbox.close());
    return sandboxGateway(resolved, sandbox);
  };
  const client = once(async () => {
    const [{ createClient }, { redactingClient }] = await Promise.all([
      import('../http/client.ts'),
      import('../http/redacting-client.ts'),
    ]);
    const { baseUrl, key } = await gateway();
    const redact = redactor([key]);
    const trace = globals.verbose ? (line: string) => progress.note(redact(line)) : undefined;
    const opened = createClient({ baseUrl, key, userAgent: `mgw/${version}`, trace });
    closers.push(() => opened.close());
    // A short key stands in answers by chance: taking it out would break them.
    return key.length < 8 ? opened : redactingClient(opened, secretRedactor([key]));
  });
  const context: Context = {
    io,
    clock,
    globals,
    progress,
    redact: (text) => redact(text),
    settings,
    gateway,
    client,
    ledger: once(async () => ledgerOf(await settings(), clock)),
    jobDeps: once(() => jobDepsOf(context)),
    budget: (kind, name) => budgetOf(context, kind, name, closers),
    allowances: once(() => allowancesOf(context)),
    close: async () => {
      progress.stop();
      for (const close of closers.reverse()) await close();
    },
  };
  return context;
}

async function ledgerOf(settings: Settings, clock: Clock): Promise<Ledger> {
  const { openFileLedger } = await import('../ledger/file-ledger.ts');
  return openFileLedger(ledgerFolder(settings), () => clock.now());
}

async function real(resolved: Settings): Promise<Gateway> {
  return (await import('./settings.ts')).realGateway(resolved);
}

async function jobDepsOf(context: Context): Promise<JobDeps> {
  const { clock, progress } = context;
  const [{ accountOf }, { priceOf }, settings, { name, key }, ledger, client] = await Promise.all([
    import('./account.ts'),
    import('./prices.ts'),
    context.settings(),
    context.gateway(),
    context.ledger(),
    context.client(),
  ]);
  return {
    ledger,
    priceOf: (order) => priceOf(order, settings),
    allowances: () => context.allowances(),
    client,
    clock,
    owner: currentOwner(),
    gateway: name,
    account: accountOf(key),
    redact: secretRedactor([key]),
    note: (text) => progress.note(text),
    signals: interruptions(),
    userAgent: `mgw/${version}`,
    requestTimeoutMs: settings.requestTimeoutMs.value,
    retries: settings.retries.value,
    retry5xx: settings.submitRetry5xx.value,
  };
}

async function allowancesOf(context: Context): Promise<Allowance[]> {
  const { standingAllowance } = await import('./standing-allowance.ts');
  return standingAllowance(await context.settings(), (name) => context.budget('standing', name));
}

async function budgetOf(
  context: Context,
  kind: BudgetKind,
  name: string,
  closers: Closer[],
): Promise<Budget> {
  const [{ budgetPath, openBudget }, { chargeOutcome }, settings, ledger] = await Promise.all([
    import('../budget/open-budget.ts'),
    import('../jobs/charge-outcome.ts'),
    context.settings(),
    context.ledger(),
  ]);
  const budget = await openBudget(budgetPath(ledgerFolder(settings), kind, name), {
    now: () => context.clock.now(),
    outcomeOf: (reservation) => chargeOutcome(ledger, reservation),
  });
  closers.push(() => budget.close());
  return budget;
}

/** Where the ledger is: the sandbox has one of its own, so that play money never mixes with real. */
export function ledgerFolder(settings: Settings): string {
  return settings.sandbox.value ? join(sandboxFolder(settings), 'ledger') : settings.stateDir.value;
}

/** Where the sandbox keeps its tasks, its bill and its ledger. */
export function sandboxFolder(settings: Settings): string {
  return join(settings.stateDir.value, 'sandbox');
}

async function playGateway(settings: Settings): Promise<Pick<Sandbox, 'url' | 'key' | 'close'>> {
  const { openSandbox } = await import('./open-sandbox.ts');
  return openSandbox(settings, join(sandboxFolder(settings), 'gateway'));
}

// A sandbox is loopback and free: it may be asked more often than a real gateway.
function sandboxGateway(settings: Settings, sandbox: Pick<Sandbox, 'url' | 'key'>): Gateway {
  const asked = settings.pollIntervalMs;
  return {
    baseUrl: new URL(sandbox.url),
    key: sandbox.key,
    name: sandboxName,
    pollIntervalMs: asked.source === 'default' ? 200 : asked.value,
  };
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
