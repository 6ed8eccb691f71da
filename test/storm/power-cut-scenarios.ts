import type { JobKind } from '../../src/job.ts';
import type { FaultGateway } from '../faults/gateway.ts';
import type { Stage } from './power-cut.ts';

/** A command line whose run is recorded and cut short at every moment. */
export interface Scenario {
  name: string;
  protocol: JobKind;
  /** The command line; where it saves a file, it saves it at `out`. */
  command: (out: string) => string[];
  saves: boolean;
  /** What is saved. */
  output: (gateway: FaultGateway) => Buffer;
  isKeyed?: boolean;
  /** How many pieces it is spoken in; absent where the whole is one job. */
  pieces?: number;
  /** What is done before the recording; gives the command line that is recorded in place of `command`. */
  prepare?: (stage: Stage) => Promise<string[]>;
}

const boat = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt', 'a paper boat'];
const fast = ['--poll-interval', '10ms'];
const sentences = 'One paper boat. Two paper boats. Three paper boats.';

const served: Scenario['output'] = (gateway) => gateway.served.content;
const submit: Scenario = {
  name: 'submit',
  protocol: 'c',
  saves: false,
  output: served,
  command: () => boat,
};
const save = (...more: string[]): Pick<Scenario, 'saves' | 'command'> => ({
  saves: true,
  command: (out) => [...boat, '-o', out, ...fast, ...more],
});

/** What is cut short: each way of paying, and each way of saving. */
export const scenarios: readonly Scenario[] = [
  submit,
  { ...submit, name: 'submit -o', ...save() },
  { ...submit, name: 'submit --key -o', ...save('--key', 'boat'), isKeyed: true },
  { ...submit, name: 'resolve --adopt', ...save(), prepare: leaveUnknown },
  {
    name: 'tts',
    protocol: 'tts',
    saves: true,
    output: served,
    command: (out) => ['tts', 'A paper boat.', '-o', out],
  },
  {
    name: 'tts --split',
    protocol: 'tts',
    saves: true,
    pieces: 3,
    output: ({ served: { content } }) => Buffer.concat([content, content, content]),
    command: (out) => ['tts', sentences, '--split', '--piece-length', '20', '--concurrency', '1', '-o', out],
  },
];

/** A submission whose answer is lost; the recorded command adopts its task. */
async function leaveUnknown({ user, gateway, out }: Stage): Promise<string[]> {
  gateway.script.submit.push(({ socket }) => {
    gateway.create();
    socket.destroy();
  });
  const { json } = await user.run([...boat, '-o', out, ...fast, '--json']);
  return ['jobs', 'resolve', json.job.id, '--adopt', gateway.created[0] ?? ''];
}
