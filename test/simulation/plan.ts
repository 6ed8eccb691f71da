import { randomFor, pick } from '../storm/random.ts';
import type { Remains } from './disk.ts';
import { failing } from './gateway.ts';
import type { BeforeCall, Incident, Moment } from './machine.ts';
import type { NetworkFault } from './traffic.ts';

/** A schedule: the commands that people run concurrently, and the incidents. The seed determines everything else. */
export interface Plan {
  seed: number;
  commands: string[][];
  incidents: Incident[];
  /** Whether to report an incident whose call is never made. In a drawn plan, the calls are only guesses. */
  isExact?: boolean;
}

const model = ['-m', 'vendor-h3-mini', '--duration', '5', '--json'];
const submits = (prompt: string, ...more: string[]): string[] => [
  'video',
  'c',
  'submit',
  prompt,
  ...model,
  ...more,
];

const boat = submits('a boat', '--key', 'boat');
const saved = [...boat, '-o', '/home/boat.mp4'];
const plane = submits('a plane', '-o', '/home/plane.mp4');
/** The command whose task fails. */
export const storm = submits(failing.prompt, '--key', 'storm', '-o', '/home/storm.mp4');
const budgeted = (key: string): string[] => submits(`a ${key}`, '--key', key, '--budget-name', 'little');

const elsewhere = ['--base-url', 'http://127.0.0.1:92'];
const copied = ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'];
const resubmit = ['jobs', 'resolve', '@boat', '--resubmit', '--json'];

/** A manifest with three rows. */
export const clips = {
  path: '/clips/clips.jsonl',
  rows: ['car', 'train', 'ship'].map((id) => ({
    id,
    prompt: `a ${id}`,
    model: 'vendor-h3-mini',
    duration: 5,
  })),
};
/** The command that runs the batch. */
export const batch = ['batch', 'run', clips.path, '-o', '/home/{id}.mp4', '--json'];
/** The command that runs the batch under a budget for only one of its rows. */
export const budgetedBatch = [...batch, '--budget-name', 'little'];

/** The pieces of the long text. */
export const pieces = ['red word.', 'blue word.'];
const book = [
  ...['tts', pieces.join(' '), '--split', '--piece-length', '10'],
  ...['-o', '/home/book.pcm', '--json'],
];

/** The sets of commands that may run together, each with its weight. */
const scenes: readonly (readonly [string[][], number])[] = [
  [[boat, boat], 4],
  [[saved, saved], 4],
  [[saved, [...boat, '-o', '/home/other.mp4']], 2],
  [[saved, saved, ['jobs', 'rm', '@boat', '--json']], 3],
  [[boat, ['jobs', 'rm', '@boat', '--json'], boat], 3],
  [[saved, copied], 2],
  [[saved, copied, ['jobs', 'rm', '@boat', '--json']], 2],
  [[storm, storm], 3],
  [[storm, ['jobs', 'fetch', '@storm', '-o', '/home/copy.mp4', '--json']], 1],
  [[storm, ['video', 'c', 'status', '@storm', '--json']], 5],
  [[plane, plane], 3],
  [[plane, submits('a plane', '-o', '/home/second.mp4')], 2],
  [[submits('a plane'), submits('a plane')], 2],
  [[boat, [...resubmit, ...elsewhere]], 2],
  [[boat, ['jobs', 'resolve', '@boat', '--not-created', '--json'], boat], 2],
  [[boat, ['jobs', 'resolve', '@boat', '--adopt', 'task_0001', '--json'], boat], 2],
  [[budgeted('car'), ['jobs', 'resolve', '@car', '--adopt', 'task_0001', '--json'], budgeted('train')], 2],
  [[boat, [...boat, ...elsewhere]], 1],
  [[boat, submits('a ship', '--key', 'boat')], 1],
  [[submits('boat', '--key', 'boat'), submits('boat')], 2],
  [[budgeted('car'), budgeted('train')], 4],
  [[budgeted('car'), budgeted('car'), budgeted('train')], 2],
  [[budgeted('car'), budgeted('train'), ['jobs', 'rm', '@car', '--json']], 2],
  [[plane, ['jobs', 'prune', '--older-than', '1ms', '--json'], plane], 1],
  [[batch, batch], 2],
  [[batch, ['jobs', 'rm', '@clips/car', '--json']], 1],
  [[batch, ['batch', 'retry', clips.path, '--id', 'car', '--json']], 1],
  [[budgetedBatch, budgetedBatch], 2],
  [[budgetedBatch, budgetedBatch, budgetedBatch], 1],
  [
    [
      ['tts', 'a word', '--key', 'word', '-o', '/home/word.mp3', '--json'],
      ['tts', 'a word', '--key', 'word', '-o', '/home/word.mp3', '--json'],
    ],
    3,
  ],
  [[book, book], 1],
  [[boat, resubmit, boat], 2],
  [[boat, copied, copied], 2],
  [[submits('a car', '--key', 'car', '--budget', '1'), submits('a car', '--key', 'car', '--budget', '1')], 2],
  [
    [
      [...saved, '--sidecar'],
      [...saved, '--sidecar'],
    ],
    2,
  ],
  [[saved, ['jobs', 'prune', '--older-than', '1ms', '--json'], copied], 1],
  [[saved, ['jobs', 'wait', '@boat', '--json'], ['jobs', 'rm', '@boat', '--json']], 1],
];

/**
 * When a later command starts, with weights. `starts soon` is the first time that its predecessor waits for anything.
 * `starts in a wait` is the first time that all processes wait for a second or more, such as for a task.
 */
const starts = [
  ['starts soon', 3],
  ['starts in a wait', 2],
  ['starts last', 1],
] as const;

/** What a power cut leaves on the disk, with weights. */
const remains: readonly (readonly [Remains, number])[] = [
  ['lost', 2],
  ['journal', 1],
  ['reordered', 1],
  ['kept', 1],
];

const stepsPerChange = 25;

// The calls that decide which process owns a job, a name, a file or money, and the calls that read the decision.
const decisiveCalls = [
  ...['link claims/key.', 'link claims/take.', 'link claims/send.', 'stat claims/', 'unlink claims/'],
  ...['link jobs/', 'rename .jsonl', 'unlink jobs/', 'open jobs/', 'stat jobs/', 'readdir jobs'],
  ...['open index.log', 'stat index.log', 'open budgets/', 'link budgets/', 'write "claim":'],
  ...['began', 'sending', 'reply', 'accepted', 'observed', 'finished', 'file', 'delivered'].map(
    (type) => `write "type":"${type}"`,
  ),
  ...['link /home/', 'stat /home/', 'unlink /home/', 'rename /home/', 'fsync', 'kill', 'print stdout'],
];

/** Draws a seed's plan. */
export function planOf(seed: number): Plan {
  const random = randomFor(seed, 'plan');
  const commands = pick(random, scenes);
  const length = commands.reduce((sum, [name]) => sum + (name === 'batch' ? 700 : 230), 0);
  // Often draws an incident soon after the previous one, because two incidents in quick succession find more defects
  // than two at random times.
  let before = 0;
  const at = (): Moment => {
    if (random() < 0.4) return { at: 1 + Math.floor(random() * length) };
    const isSoon = random() < 0.5;
    before = 1 + Math.floor(isSoon ? before + random() * 7 : (random() * length) / stepsPerChange);
    return { after: before };
  };
  const incidents: Incident[] = [];
  for (let command = 2; command <= commands.length; command += 1) {
    const start = pick(random, starts);
    if (start !== 'starts soon') incidents.push({ command, what: start });
  }
  const switches = random() < 0.5 ? 1 + Math.floor(random() * 4) : Math.floor(random() * length * 0.2);
  for (let count = 0; count < switches; count += 1) incidents.push({ ...at(), what: 'switch' });
  if (random() < 0.5) incidents.push(...chainOf(commands.length, random));
  if (random() < 0.4) incidents.push({ request: 2 + Math.floor(random() * 2), what: 'answer slow' });
  // Schedules in which no process dies find the defects of long-running processes.
  const isCalm = random() < 0.4;
  if (!isCalm && random() < 0.4) incidents.push(...crashOf(length, random));
  const faults = isCalm ? 0 : Math.floor(random() * 6);
  for (let count = 0; count < faults; count += 1) incidents.push(incidentAt(at, random));
  return { seed, commands: [...commands], incidents };
}

// Draws incidents that wait for each other, like those of most stories.
function chainOf(processes: number, random: () => number): Incident[] {
  return Array.from({ length: 1 + Math.floor(random() * 5) }, () => {
    const before = decisiveCalls[Math.floor(random() * decisiveCalls.length)] as string;
    const process = 1 + Math.floor(random() * processes);
    if (random() < 0.3) return incidentAt(() => ({ process, before }), random);
    return { process, before, what: random() < 0.5 ? 'switch' : 'next starts' };
  });
}

// Draws a kill, and soon after it a power cut, which removes the names that the dead process had not made durable.
function crashOf(length: number, random: () => number): Incident[] {
  // Prefers early moments, because a command claims its names early.
  const after = 1 + Math.floor((random() ** 2 * length) / stepsPerChange);
  const cut = after + 1 + Math.floor(random() * 8);
  return [
    { after, what: 'kill' },
    { after: cut, what: 'power cut', remains: pick(random, remains) },
  ];
}

function incidentAt(at: () => Moment | BeforeCall, random: () => number): Incident {
  const what = pick<string>(random, [
    ['kill', 6],
    ['power cut', 5],
    ['disk full', 2],
    ['request', 5],
    ['time passes', 1],
    ['clock jump', 1],
    ['index lost', 1],
    ['hook hidden', 1],
  ]);
  if (what === 'power cut')
    return {
      ...at(),
      what,
      remains: pick(random, remains),
    };
  if (what === 'disk full')
    return { ...at(), what, room: Math.floor(random() * 300), steps: 1 + Math.floor(random() * 200) };
  if (what === 'clock jump') return { ...at(), what, ms: Math.floor((random() - 0.5) * 2 * 86_400_000) };
  if (what === 'hook hidden') return { process: 1 + Math.floor(random() * 3), what };
  if (what === 'request') {
    const kinds = ['refused', 'lost', 'answer lost', 'answer late', 'answer cut', 'error', 'busy'] as const;
    const fault = kinds[Math.floor(random() * kinds.length)] as NetworkFault;
    return { request: 1 + Math.floor(random() * 3), what: fault };
  }
  return { ...at(), what: what as 'kill' };
}
