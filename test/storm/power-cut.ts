import { rmSync } from 'node:fs';
import { reply, type Answer } from '../faults/gateway.ts';
import {
  readRecording,
  recordTo,
  type Created,
  type Entry,
  type Moment,
  type Recording,
} from './recording.ts';
import { onCreated, onStage, prepared, Reruns, type Played, type Stage, type Swept } from './reruns.ts';
import type { Scenario } from './scenarios.ts';
import { listing, treeOf } from './tree.ts';
import { remains, type Remains } from './unsynced.ts';

/** Selects the disk states that are tried. If absent, all are tried. */
export interface Part {
  whatRemains?: readonly Remains[];
  /** Tries every n-th moment, counted from `from`. */
  every?: number;
  from?: number;
}

/**
 * Records a run of a scenario, and computes for each moment the states in which a power cut may leave the disk.
 * Then repeats the command on each of these disks until it ends, with the gateway in its state at that moment.
 * `recorder` is the URL of the preload.
 */
export function sweepPowerCut(
  scenario: Scenario,
  recorder: string,
  { whatRemains = Object.keys(remains) as Remains[], every = 1, from = 0 }: Part = {},
): Promise<Swept> {
  return onStage(scenario, async (stage) => {
    const recorded = await recordRun(scenario, stage, recorder);
    const { moments, contents } = recorded;
    const reruns = new Reruns(scenario, stage, recorded, contents);
    const cut = (moment: Moment, what: Remains, created: readonly Created[]): Promise<void> => {
      const where = `moment ${moment.n} of ${moments.length}, after "${moment.after}", ${remains[what]}`;
      return reruns.on({ where, tree: moment.disk(what), created, printed: moment.printed });
    };
    for (const moment of moments.filter((_, index) => index % every === from % every)) {
      const { created, outstanding } = moment;
      for (const what of whatRemains) {
        await cut(moment, what, created);
        if (outstanding !== undefined) await cut(moment, what, [...created, outstanding]);
      }
    }
    return { moments: moments.length, disks: reruns.disks, violations: reruns.violations };
  });
}

async function recordRun(scenario: Scenario, stage: Stage, recorder: string): Promise<Recording & Played> {
  const { user, gateway } = stage;
  const { answer, ends = 0 } = scenario;
  const played = await prepared(scenario, stage);
  const log = `${user.cwd}.log`;
  const record = recordTo(log);
  const end = onCreated(gateway, (created) => record({ kind: 'created', ...created }));
  const env = { NODE_OPTIONS: `--import=${recorder}`, MGW_STORM_ROOT: user.cwd, MGW_STORM_LOG: log };
  if (answer !== undefined) gateway.script.submit.push(answering(answer, record));
  const run = await user.run(played.args, { env });
  end();
  if (run.code !== ends) throw new Error(`the run without a power cut ended with ${run.code}: ${run.stderr}`);
  const recording = readRecording(log);
  rmSync(log);
  expectAllSeen(recording, user.cwd);
  return { ...played, ...recording };
}

/** Wraps a response so that it is recorded if it created no task. */
function answering(answer: Answer, record: (entry: Entry) => void): Answer {
  return (call) => {
    const { length } = call.gateway.created;
    if (typeof answer === 'function') answer(call);
    // Record the entry before the response is sent, because the client's next step depends on the response.
    if (call.gateway.created.length === length) record({ kind: 'declined' });
    if (typeof answer !== 'function') reply(call.response, answer);
  };
}

// Fails if the recorder missed a file. A file written by an unrecorded call would look as if it was never written.
function expectAllSeen({ moments }: Recording, folder: string): void {
  const [last, ...others] = moments.toReversed();
  const seen = JSON.stringify(listing(last?.disk('kept') ?? {}));
  if (seen !== JSON.stringify(listing(treeOf(folder, () => undefined))))
    throw new Error('the recorder has missed an operation');
  const isSent = others.some(({ outstanding }) => outstanding !== undefined);
  if (!isSent && last?.created.length !== 0) throw new Error('the recorder recorded no request');
}
