import { batch, budgetedBatch, type Plan } from './plan.ts';

const boat = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '--duration', '5', '--json'];
const keyed = [...boat, '--key', 'boat'];
const word = ['tts', 'a word', '--key', 'word', '-o', '/home/word.mp3', '--json'];
const plane = ['video', 'c', 'submit', 'a plane', ...boat.slice(4), '-o', '/home/plane.mp4'];
const saved = [...keyed, '-o', '/home/boat.mp4'];

/** Shrunk schedules that once broke a promise, by promise. They run with the tests. */
export const stories: Record<string, Plan> = {
  'the log of an output, torn by a full disk, was treated as the file of another program': {
    seed: 1061,
    commands: [saved, saved],
    incidents: [{ at: 310, what: 'disk full', room: 141, steps: 131 }],
  },
  'a job was created under a claim that a power cut removed, and its key was charged again': {
    seed: 1,
    commands: [keyed, keyed],
    incidents: [
      { command: 2, what: 'starts last' },
      { after: 2, what: 'kill' },
      { after: 7, what: 'power cut', remains: 'lost' },
    ],
  },
  'a job was removed although its name was not durable, and its key reported a lost record': {
    seed: 1,
    commands: [keyed, ['jobs', 'rm', '@boat', '--json'], keyed],
    incidents: [
      { command: 2, what: 'starts last' },
      { after: 3, what: 'kill' },
      { after: 5, what: 'power cut', remains: 'reordered' },
    ],
  },
  'a job was created and sent while another process looked for it, and was considered lost': {
    seed: 38,
    commands: [word, word],
    incidents: [
      { at: 120, what: 'switch' },
      { at: 152, what: 'switch' },
    ],
  },
  'a run ended while another run checked twice whether it was alive, and the same output was paid for twice':
    {
      seed: 511,
      commands: [plane, plane],
      incidents: [
        { at: 159, what: 'switch' },
        { at: 205, what: 'switch' },
        { request: 1, what: 'answer cut' },
      ],
    },
  'a job was paid for although no process had made its name durable, and its record was lost': {
    seed: 19140,
    commands: [word, word],
    incidents: [
      { at: 51, what: 'switch' },
      { at: 305, what: 'power cut', remains: 'journal' },
      { at: 167, what: 'kill' },
    ],
  },
  'a job was removed while a fetch of it began, and the error said that the state folder cannot be used': {
    seed: 1000376,
    commands: [
      saved,
      ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'],
      ['jobs', 'rm', '@boat', '--json'],
    ],
    incidents: [
      { command: 2, what: 'starts last' },
      ...[335, 360, 375].map((at) => ({ at, what: 'switch' }) as const),
    ],
  },
  'a run that began while its job was removed, between the last check for runs and the removal, was refused':
    {
      seed: 4005833,
      commands: [keyed, ['jobs', 'rm', '@boat', '--json'], keyed],
      incidents: [
        ...[158, 160, 201, 206].map((at) => ({ at, what: 'switch' }) as const),
        { after: 4, what: 'kill' },
        { after: 6, what: 'switch' },
      ],
    },
  'a run died after it published kept audio and before it removed the audio, and the next run left it behind':
    {
      seed: 7_003_552,
      commands: [word, word],
      incidents: [
        { at: 30, what: 'switch' },
        { after: 2, what: 'switch' },
        { at: 315, what: 'kill' },
        { after: 13, what: 'kill' },
      ],
    },
  'the index was lost while a batch created three jobs, and one of them was never listed': {
    seed: 100_096,
    commands: [budgetedBatch, budgetedBatch],
    incidents: [
      { command: 2, what: 'starts last' },
      { after: 19, what: 'index lost' },
      { at: 304, what: 'power cut', remains: 'lost' },
    ],
  },
  'a full disk tore the line before the record of sending, and the reservation of an adopted task was released':
    {
      seed: 22_001_266,
      commands: [budgetedBatch, budgetedBatch],
      incidents: [
        { at: 428, what: 'switch' },
        { at: 661, what: 'disk full', room: 206, steps: 50 },
        { request: 1, what: 'answer lost' },
      ],
    },
  'a job was removed while another command began to fetch it, which lost it although it was alive': {
    seed: 7_003_893,
    commands: [
      saved,
      ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'],
      ['jobs', 'rm', '@boat', '--json'],
    ],
    incidents: [
      { command: 2, what: 'starts last' },
      { at: 342, what: 'switch' },
      { at: 377, what: 'switch' },
    ],
  },
  'a full disk kept two acceptances from being recorded, and two batches waited for each other': {
    seed: 8_003_817,
    commands: [batch, batch],
    incidents: [
      { at: 108, what: 'switch' },
      { at: 528, what: 'switch' },
      { after: 23, what: 'switch' },
      { after: 7, what: 'switch' },
      { after: 3, what: 'switch' },
      { at: 197, what: 'switch' },
      { at: 627, what: 'switch' },
      { at: 79, what: 'switch' },
      { at: 344, what: 'switch' },
      { after: 9, what: 'switch' },
      { after: 40, what: 'switch' },
      { after: 5, what: 'switch' },
      { after: 11, what: 'switch' },
      { at: 227, what: 'switch' },
      { after: 37, what: 'switch' },
      { at: 756, what: 'switch' },
      { after: 35, what: 'switch' },
      { after: 27, what: 'switch' },
      { after: 8, what: 'switch' },
      { at: 912, what: 'disk full', room: 160, steps: 99 },
    ],
  },
};
