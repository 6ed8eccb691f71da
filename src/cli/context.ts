import type { Globals } from './options.ts';
import { interruptions, type Io } from './io.ts';
import { createProgress } from './output/create-progress.ts';
import { textWithGlobals } from './output/human.ts';
import type { Progress, ProgressOptions } from './output/progress.ts';
import { systemClock } from '../clock.ts';
import { openSession, type Session } from '../flows/session.ts';
import type { GatewayClient } from '../http/client.ts';

/** A command's dependencies: a session, and the user's terminal. */
export interface Context extends Session {
  readonly io: Io;
  readonly globals: Globals;
  readonly progress: Progress;
  /** The options that `progress` was created with. */
  readonly displayOptions: ProgressOptions;
}

/**
 * Builds a command's context. Settings, ledger and connections are opened only when they are first used.
 * @param startedAt the start time of the process, in ms since 1970, if the process runs only this command
 */
export function createContext(io: Io, globals: Globals, startedAt?: number): Context {
  const clock = io.clock ?? systemClock;
  const displayOptions = {
    stderr: io.stderr,
    env: io.env,
    quiet: globals.quiet ?? false,
    color: globals.color !== false && !io.env['NO_COLOR'],
    clock,
  };
  const display = createProgress(displayOptions);
  const session = openSession({
    clock,
    settings: async () => (await import('../flows/settings.ts')).loadSettings(globals, io.env),
    note: (text) => display.note(textWithGlobals(text, globals)),
    trace: globals.verbose ? (line) => session.note(line) : undefined,
    signals: interruptions,
    startedAt,
    wrapClient: (client) => watchedClient(client, display),
  });
  const progress: Progress = { ...display, note: (text) => session.note(text) };
  const close = async (): Promise<void> => {
    progress.stop();
    await session.close();
  };
  return { ...session, io, globals, progress, displayOptions, close };
}

/** Wraps a client so that each call is displayed until the head of its response arrives. */
function watchedClient(client: GatewayClient, { calling }: Pick<Progress, 'calling'>): GatewayClient {
  const { host } = client.baseUrl;
  const withProgress = async <T>(isPaid: boolean, call: () => Promise<T>): Promise<T> => {
    const endDisplay = calling(`${isPaid ? 'submitting to' : 'waiting for'} ${host}`);
    try {
      return await call();
    } finally {
      endDisplay();
    }
  };
  return {
    ...client,
    // Only paid calls pass `onConnected`.
    exchange: (request, options) =>
      withProgress(options.onConnected !== undefined, () => client.exchange(request, options)),
    stream: (request, options) =>
      withProgress(options.onConnected !== undefined, () => client.stream(request, options)),
  };
}
