import type { Command } from 'commander';
import { protocols } from '../../../protocols/registry.ts';
import type { Run } from '../../action.ts';
import { registerFetch } from './fetch.ts';
import { registerStatus } from './status.ts';
import { registerSubmit } from './submit.ts';

const titles = {
  a: 'Protocol A: long-running operations (predictLongRunning)',
  b: 'Protocol B: cloud actions (CreateAigcVideoTask)',
  c: 'Protocol C: unified tasks (/v1/video/generations)',
};

/** `mgw video a|b|c submit|status|fetch`. */
export function registerVideo(parent: Command, run: Run): void {
  const video = parent.command('video').description('make a video, through protocol a, b or c');
  for (const protocol of Object.values(protocols)) {
    const group = video.command(protocol.name).description(titles[protocol.name]);
    registerSubmit(group, protocol, run);
    registerStatus(group, protocol, run);
    registerFetch(group, protocol, run);
  }
}
