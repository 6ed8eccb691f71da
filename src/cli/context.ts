import type { Globals } from './options.ts';
import { interruptions, type Io } from './io.ts';
import { createProgress } from './output/create-progress.ts';
import type { Progress } from './output/progress.ts';
import { systemClock } from '../clock.ts';
import { openSession, type Session } from '../flows/session.ts';
import type { GatewayClient } from '../http/client.ts';

/** The dependencies of a command: a session, and the user's terminal. */
export interface Context extends Session {
  readonly io: Io;
  readonly globals: Globals;
  readonly progress: Progress;
}

/**
 * Builds the context of one command. Nothing is read or opened before its first use.
 * @param startedAt when the process started, ms since 1970, if it runs this command only
 */
export function createContext(io: Io, globals: Globals, startedAt?: number): Context {
  const clock = io.clock ?? systemClock;
  const bare = createProgress({
    stderr: io.stderr,
    env: io.env,
    quiet: globals.quiet ?? false,
    color: globals.color !== false && !io.env['NO_COLOR'],
    clock,
  });
  const session = openSession({
    clock,
    settings: async () => (await import('../flows/settings.ts')).loadSettings(globals, io.env),
    note: (text) => bare.note(text),
    trace: globals.verbose ? (line) => session.note(line) : undefined,
    signals: interruptions,
    startedAt,
    wrapClient: (client) => watchedClient(client, bare),
  });
  const progress: Progress = { ...bare, note: (text) => session.note(text) };
  const close = async (): Promise<void> => {
    progress.stop();
    await session.close();
  };
  return { ...session, io, globals, progress, close };
}

/** Wraps a client, and shows each call until the head of its response arrives. */
function watchedClient(client: GatewayClient, { calling }: Pick<Progress, 'calling'>): GatewayClient {
  const { host } = client.baseUrl;
  const during = async <T>(isPaid: boolean, call: () => Promise<T>): Promise<T> => {
    const end = calling(`${isPaid ? 'submitting to' : 'asking'} ${host}`);
    try {
      return await call();
    } finally {
      end();
    }
  };
  return {
    ...client,
    // Only paid calls pass `onConnected`.
    exchange: (request, options) =>
      during(options.onConnected !== undefined, () => client.exchange(request, options)),
    stream: (request, options) =>
      during(options.onConnected !== undefined, () => client.stream(request, options)),
  };
}
