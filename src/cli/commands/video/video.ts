import type { Command } from 'commander';
import { addCommands, type ListedCommand, type Register, type Run } from '../../command-tree.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import { protocols } from '../../../protocols/registry.ts';

/**
 * `mgw video [PROTOCOL] submit|status|fetch`: makes videos. Without PROTOCOL, the model or the job determines the
 * protocol.
 */
export function registerVideo(video: Command, run: Run): void {
  const commands = Object.values<Protocol>(protocols).map((protocol) => {
    const register: Register = (command, run) => addCommands(command, run, commandsOf(protocol));
    return [protocol.name, { about: protocol.about, load: () => Promise.resolve(register) }] as const;
  });
  addCommands(video, run, { ...commandsOf(undefined), ...Object.fromEntries(commands) });
}

function commandsOf(protocol: Protocol | undefined): Record<string, ListedCommand> {
  type RegisterFor = (command: Command, protocol: Protocol | undefined, run: Run) => void;
  const forProtocol =
    (register: RegisterFor): Register =>
    (command, run) =>
      register(command, protocol, run);
  return {
    submit: {
      about: 'submit a video; prints the job id, or with -o waits and saves the video',
      load: async () => forProtocol((await import('./submit.ts')).registerSubmit),
    },
    status: {
      about: "query each job's state once",
      load: async () => forProtocol((await import('./status.ts')).registerStatus),
    },
    fetch: {
      about: 'wait for jobs and save their results',
      load: async () => forProtocol((await import('../jobs/fetch.ts')).registerFetchOf),
    },
  };
}
