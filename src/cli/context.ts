import { join } from 'node:path';
import { systemClock, type Clock } from '../clock.ts';
import type { Settings } from '../config/resolve.ts';
import type { GatewayClient } from '../http/client.ts';
import type { JobDeps } from '../jobs/deps.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { currentOwner } from '../ledger/owner.ts';
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
  /** Ends what was opened: idle connections, the embedded sandbox. */
  close(): Promise<void>;
}

/** The sandbox's constant name in the records: its port changes from run to run. */
export const sandboxName = 'sandbox';

/** Builds the context of one run; nothing is read or opened before it is asked for. */
export function createContext(io: Io, globals: Globals): Context {
  const clock = io.clock ?? systemClock;
  const closers: (() => Promise<void> | void)[] = [];
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
  const ledger = once(async () => {
    const { openFileLedger } = await import('../ledger/file-ledger.ts');
    const resolved = await settings();
    return openFileLedger(ledgerFolder(resolved), () => clock.now());
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
    ledger,
    jobDeps: once(() => jobDepsOf(context)),
    close: async () => {
      progress.stop();
      for (const close of closers.reverse()) await close();
    },
  };
  return context;
}

async function real(resolved: Settings): Promise<Gateway> {
  return (await import('./settings.ts')).realGateway(resolved);
}

async function jobDepsOf(context: Context): Promise<JobDeps> {
  const { clock, progress } = context;
  const [{ accountOf }, settings, { name, key }, ledger, client] = await Promise.all([
    import('./account.ts'),
    context.settings(),
    context.gateway(),
    context.ledger(),
    context.client(),
  ]);
  return {
    ledger,
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
