import type { Incident, Moment } from './machine.ts';
import { batch, storm, type Plan } from './plan.ts';

const boat = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '--duration', '5', '--json'];
const keyed = [...boat, '--key', 'boat'];
const budgeted = [...keyed, '--budget-name', 'little'];
const word = ['tts', 'a word', '--key', 'word', '-o', '/home/word.mp3', '--json'];
const plane = ['video', 'c', 'submit', 'a plane', ...boat.slice(4), '-o', '/home/plane.mp4'];
const saved = [...keyed, '-o', '/home/boat.mp4'];
const other = ['video', 'c', 'submit', 'boat', ...boat.slice(4)];

/** A schedule without step numbers, which change whenever the code changes. */
type Story = Plan & { incidents: Exclude<Incident, Moment>[] };

/** Shrunk schedules that once broke a promise, by name. The tests play all of them. */
export const stories: Record<string, Story> = {
  'the log of an output, torn by a full disk, was treated as the file of another program': {
    seed: 1061,
    commands: [saved],
    incidents: [{ process: 1, before: 'write "claim":', what: 'disk full', room: 100, steps: 1 }],
  },
  'a job was created under a claim that a power cut removed, and its key was charged again': {
    seed: 1,
    commands: [keyed, keyed],
    incidents: [
      { process: 1, before: 'unlink claims/key.boat', what: 'kill' },
      { process: 2, before: 'link claims/send.', what: 'power cut', remains: 'lost' },
    ],
  },
  'a job was removed although its name was not durable, and its key reported a lost record': {
    seed: 1,
    commands: [keyed, ['jobs', 'rm', '@boat', '--json'], keyed],
    incidents: [
      { process: 1, before: 'unlink jobs/', what: 'kill' },
      { process: 2, before: 'rename .jsonl', what: 'power cut', remains: 'lost' },
    ],
  },
  'a job was created and sent while another process looked for it, and was considered lost': {
    seed: 38,
    commands: [word, word],
    incidents: [
      { process: 1, before: 'link .jsonl', what: 'next starts' },
      { process: 2, before: 'stat claims/send.', what: 'switch' },
    ],
  },
  'a run ended while another run checked twice whether it was alive, and the same output was paid for twice':
    {
      seed: 511,
      commands: [plane, plane],
      incidents: [
        { process: 1, before: 'write "type":"file"', what: 'next starts' },
        { process: 2, before: 'kill', what: 'switch' },
        { process: 1, before: 'stat /home/plane.mp4.part', what: 'switch' },
        { process: 2, before: 'read', what: 'switch' },
        { process: 1, before: 'link /home/plane.mp4', what: 'kill' },
      ],
    },
  'a job was paid for although no process had made its name durable, and its record was lost': {
    seed: 19140,
    commands: [word, word],
    incidents: [
      { process: 1, before: 'unlink jobs/', what: 'kill' },
      { process: 2, before: 'write "type":"reply"', what: 'power cut', remains: 'lost' },
    ],
  },
  'a job was removed while a fetch of it began, and the error said that the state folder cannot be used': {
    seed: 1000376,
    commands: [
      saved,
      ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'],
      ['jobs', 'rm', '@boat', '--json'],
    ],
    incidents: [{ process: 2, before: 'write "type":"began"', what: 'next starts' }],
  },
  'a run that began while its job was removed, between the last check for runs and the removal, was refused':
    {
      seed: 4005833,
      commands: [keyed, ['jobs', 'rm', '@boat', '--json'], keyed],
      incidents: [
        { process: 1, before: 'link claims/send.', what: 'kill' },
        { process: 2, before: 'rename .jsonl', what: 'next starts' },
      ],
    },
  'a run died after it published kept audio and before it removed the audio, and the next run did not remove it':
    {
      seed: 7_003_552,
      commands: [word, word],
      incidents: [
        { process: 1, before: 'link jobs/', what: 'next starts' },
        { process: 1, before: 'link /home/word.mp3', what: 'kill' },
        { process: 2, before: 'unlink /home/word.mp3.part', what: 'kill' },
      ],
    },
  'the index was lost while a batch created three jobs, and one of them was never listed': {
    seed: 1,
    commands: [batch, ['jobs', 'ls', '--json']],
    incidents: [
      { process: 1, before: 'open jobs/', what: 'index lost' },
      { process: 1, before: 'open index.log', what: 'next starts' },
    ],
  },
  'a full disk tore the line before the record of sending, and the reservation of an adopted task was released':
    {
      seed: 1,
      commands: [budgeted, budgeted],
      incidents: [
        { process: 1, before: 'write "type":"sending"', what: 'next starts' },
        { process: 2, before: 'write "type":"began"', what: 'disk full', room: 50, steps: 1 },
        { request: 1, what: 'answer lost' },
      ],
    },
  'a job was removed while another command began to fetch it, and the command did not find the live job': {
    seed: 7_003_893,
    commands: [
      saved,
      ['jobs', 'rm', '@boat', '--json'],
      ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'],
    ],
    incidents: [
      { process: 2, before: 'rename .jsonl', what: 'next starts' },
      { request: 5, what: 'answer late' },
    ],
  },
  'a full disk kept two outcomes from being recorded, and two batches waited for each other': {
    seed: 8_003_817,
    commands: [batch, batch],
    incidents: [
      { process: 1, before: 'unlink claims/send.', what: 'next starts' },
      { process: 2, before: 'write confirmed', what: 'switch' },
      { process: 1, before: 'kill', what: 'disk full', room: 0, steps: 250 },
    ],
  },
  'the index was lost under a process that then died, and the job that another paid for was never listed': {
    seed: 1,
    commands: [word, keyed, ['jobs', 'ls', '--json'], keyed],
    incidents: [
      { process: 2, before: 'open jobs/', what: 'index lost' },
      { process: 2, before: 'link jobs/', what: 'next starts' },
      { process: 3, before: 'timer 10', what: 'time passes' },
      { process: 3, before: 'print stdout', what: 'switch' },
      { process: 2, before: 'stat index.log', what: 'kill' },
      { command: 4, what: 'starts last' },
    ],
  },
  'a full disk tore a line of the index between the look and the write of another process, whose job was never listed':
    {
      seed: 1,
      commands: [[...other, '--key', 'boat'], other],
      incidents: [
        { process: 1, before: 'write f1m', what: 'next starts' },
        { process: 2, before: 'timer 10', what: 'time passes' },
        { process: 2, before: 'write f1m', what: 'disk full', room: 9, steps: 1 },
      ],
    },
  'a poll that was recorded late revoked a failure, which another process then reported of a running job': {
    seed: 1,
    commands: [storm, storm],
    incidents: [
      { process: 1, before: 'print Accepted', what: 'next starts' },
      { process: 1, before: 'write "type":"finished"', what: 'switch' },
      { process: 1, before: 'fsync', what: 'time passes' },
      { process: 1, before: 'stat jobs/', what: 'switch' },
      { request: 2, what: 'answer slow' },
    ],
  },
  'a poll whose response arrived late was recorded after a failure, and the failed job remained running': {
    seed: 1,
    commands: [storm, ['video', 'c', 'status', '@storm', '--json']],
    incidents: [
      { process: 1, before: 'print Accepted', what: 'next starts' },
      { request: 2, what: 'answer slow' },
    ],
  },
  'a run died after another run had found its process, and the other run used a second name that nobody cleaned up':
    {
      seed: 63,
      commands: [word, word],
      incidents: [
        { process: 1, before: 'open /home/word.mp3.part.json', what: 'next starts' },
        { process: 2, before: 'open /home/word.mp3.part.json', what: 'switch' },
        { process: 1, before: 'open claims/key.', what: 'switch' },
        { process: 2, before: 'open /proc/2/', what: 'switch' },
        { process: 1, before: 'unlink claims/key.', what: 'kill' },
        { process: 2, before: 'link claims/send.', what: 'kill' },
      ],
    },
  'a job was removed by a process that ended before another run of the job looked for it, and that run was refused':
    {
      seed: 1,
      commands: [
        saved,
        ['jobs', 'fetch', '@boat', '-o', '/home/copy.mp4', '--json'],
        ['jobs', 'rm', '@boat', '--json'],
      ],
      incidents: [
        { command: 2, what: 'starts last' },
        { process: 2, before: 'write "type":"began"', what: 'next starts' },
        { process: 3, before: 'rename .jsonl', what: 'switch' },
        { process: 2, before: 'kill', what: 'switch' },
      ],
    },
  'two full disks tore the claims of an output, whose log was then left as the file of another program': {
    seed: 1,
    commands: [word, word],
    incidents: [
      { process: 1, before: 'write "claim":', what: 'disk full', room: 7, steps: 1 },
      { command: 2, what: 'starts last' },
      { process: 2, before: 'write "claim":', what: 'disk full', room: 100, steps: 1 },
    ],
  },
};
