import type { Area } from '../faults/dialects.ts';
import { reply, type Answer, type Call, type FaultGateway } from '../faults/gateway.ts';
import { runHere } from '../support/one-process.ts';
import type { Stage } from './reruns.ts';

/** A command whose run is interrupted at every moment. */
export interface Scenario {
  name: string;
  protocol: Area;
  /** Returns the command line. `out` is the output path of a command that saves a file. */
  command: (out: string) => string[];
  saves: boolean;
  isKeyed?: boolean;
  /** The number of pieces of speech; absent if the text is one job. */
  pieces?: number;
  /** Configures the gateway's responses to every call. */
  setUp?: (gateway: FaultGateway) => void;
  /** The gateway's response to the first submission of the interrupted run. */
  answer?: Answer;
  /** The exit code without a fault (default: 0). */
  ends?: number;
  /** Runs before the interrupted run, and returns the command line to interrupt instead of `command`. */
  prepare?: (stage: Stage) => Promise<string[]>;
}

const submits = {
  a: ['video', 'a', 'submit', '--model', 'video-a', '--prompt', 'a paper boat'],
  b: ['video', 'b', 'submit', '--model', 'Video-B', '--model-version', '2.0', '--prompt', 'a paper boat'],
  c: ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt', 'a paper boat'],
};
const fast = ['--poll-interval', '10ms'];
const sentences = 'One paper boat. Two paper boats. Three paper boats.';

const submit: Scenario = { name: 'submit', protocol: 'c', saves: false, command: () => submits.c };
const save = (protocol: 'a' | 'b' | 'c', ...more: string[]): Omit<Scenario, 'name'> => ({
  protocol,
  saves: true,
  command: (out) => [...submits[protocol], '-o', out, ...fast, ...more],
});

/** All scenarios: each way to pay, each way to save, and each way in which the gateway may respond. */
export const scenarios: readonly Scenario[] = [
  submit,
  { ...submit, name: 'submit to a busy gateway', answer: { status: 429 } },
  { ...submit, name: 'submit that is refused', answer: { status: 422 }, ends: 4 },
  { ...submit, name: 'submit without an answer', answer: breakOff, ends: 7 },
  { ...submit, name: 'submit with an answer that tells nothing', answer: createSilently, ends: 7 },
  { name: 'submit -o', ...save('c') },
  { name: 'submit -o with a --key', ...save('c', '--key', 'boat'), isKeyed: true },
  { name: 'submit -o of Protocol A', ...save('a') },
  { name: 'submit -o of Protocol A, inline', ...save('a'), setUp: answerInline },
  { name: 'submit -o of Protocol B', ...save('b') },
  { name: 'jobs resolve --adopt', ...save('c'), prepare: leaveUnknown },
  { name: 'tts', protocol: 'tts', saves: true, command: (out) => ['tts', 'A paper boat.', '-o', out] },
  {
    name: 'tts --split',
    protocol: 'tts',
    saves: true,
    pieces: 3,
    command: (out) => ['tts', sentences, '--split', '--piece-length', '20', '--concurrency', '1', '-o', out],
  },
];

function breakOff({ gateway, socket }: Call): void {
  gateway.create();
  socket.destroy();
}

function createSilently({ gateway, response }: Call): void {
  gateway.create();
  reply(response, { body: '<html>' });
}

function answerInline(gateway: FaultGateway): void {
  const encodedVideo = gateway.served.content.toString('base64');
  const generatedSamples = [{ video: { encodedVideo, encoding: 'video/mp4' } }];
  gateway.always.query = (call) => {
    const name = gateway.dialect.queriedHandle(call);
    reply(call.response, {
      body: { name, done: true, response: { generateVideoResponse: { generatedSamples } } },
    });
  };
}

/** Makes a submission whose response is lost. Returns the command to interrupt: the one that adopts the task. */
async function leaveUnknown({ user, gateway, out }: Stage): Promise<string[]> {
  gateway.script.submit.push(breakOff);
  const { json } = await runHere([...submits.c, '-o', out, ...fast, '--json'], user.env);
  return ['jobs', 'resolve', json.job.id, '--adopt', gateway.created[0] ?? ''];
}
