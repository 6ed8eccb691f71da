import type { Command } from 'commander';
import type { Run } from '../../action.ts';
import { registerPlan } from './plan.ts';
import { registerRetry } from './retry.ts';
import { registerBatchStatus } from './status.ts';
import { registerRunBatch } from './run.ts';

const topic = `
A file of rows, each of which is one job. Run the same line as often as you like: each row is paid for once.

  id,protocol,model,duration,prompt,text
  intro,c,vendor-h3-mini,5,a paper boat at sea,
  voice,tts,,,,The boat is made of paper.

Fields are the long names of the flags of video X submit and of tts, and id, protocol (a, b, c or tts), text, file, set.PATH,
body, output and tags; mgw schema batch has all of them. A row's job is @NAME/ID; the file's stem is NAME.
A row is new, running, done, failed, rejected, unknown or changed. run carries out what is new, running or rejected;
it leaves alone what failed or was changed (mgw batch retry pays for it) and what is in doubt (mgw jobs resolve).
It ends with 0 where all rows are done, 11 where some are not, 2 where a row is bad and nothing was sent, 12 where the
budget ended it.`;

/** `mgw batch plan|run|status|retry`. */
export function registerBatch(parent: Command, run: Run): void {
  const batch = parent
    .command('batch')
    .description('many jobs from one file, each paid for once')
    .addHelpText('after', topic);
  registerPlan(batch, run);
  registerRunBatch(batch, run);
  registerBatchStatus(batch, run);
  registerRetry(batch, run);
}
