import type { Plan } from './plan.ts';

const boat = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '--duration', '5', '--json'];
const saved = [...boat, '--key', 'boat', '-o', '/home/boat.mp4'];

/** Schedules that once broke a promise, shrunk, by what they broke. They are played with the tests. */
export const stories: Record<string, Plan> = {
  'the log of an output, torn by a full disk, was taken for the file of another program': {
    seed: 1061,
    commands: [saved, saved],
    incidents: [{ at: 310, what: 'disk full', room: 141, steps: 131 }],
  },
};
