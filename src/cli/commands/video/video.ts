import type { Command } from 'commander';
import type { ProtocolName } from '../../../job.ts';
import type { Protocol } from '../../../protocols/protocol.ts';
import type { Register, Run } from '../../action.ts';
import { list } from '../../command-tree.ts';

/** `mgw video a|b|c submit|status|fetch`. */
export function registerVideo(video: Command, run: Run): void {
  list(video, run, {
    a: { about: 'Protocol A: long-running operations (predictLongRunning)', load: () => protocol('a') },
    b: { about: 'Protocol B: cloud actions (CreateAigcVideoTask)', load: () => protocol('b') },
    c: { about: 'Protocol C: unified tasks (/v1/video/generations)', load: () => protocol('c') },
  });
}

async function protocol(name: ProtocolName): Promise<Register> {
  const { protocols } = await import('../../../protocols/registry.ts');
  return (command, run) => registerProtocol(command, protocols[name], run);
}

function registerProtocol(command: Command, protocol: Protocol, run: Run): void {
  type Of = (command: Command, protocol: Protocol, run: Run) => void;
  const of =
    (register: Of): Register =>
    (command, run) =>
      register(command, protocol, run);
  list(command, run, {
    submit: {
      about: 'submit a video; prints the job id, or with -o waits and saves the video',
      load: async () => of((await import('./submit.ts')).registerSubmit),
    },
    status: {
      about: 'ask once for the state of jobs',
      load: async () => of((await import('./status.ts')).registerStatus),
    },
    fetch: {
      about: 'wait for jobs and save their results',
      load: async () => of((await import('../jobs/fetch.ts')).registerFetchOf),
    },
  });
}
