import { beforeAll, describe, expect, it } from 'vitest';
import { buildStorm, type Built } from './build.ts';
import { sweepFailures } from './failing-disk.ts';
import { sweepPowerCut } from './power-cut.ts';
import { scenarios } from './scenarios.ts';

// `npm run storm -- --power-cut` and `--failing-disk` try all scenarios, moments and operations.
const chosen = ['submit -o', 'submit -o of Protocol A, inline', 'jobs resolve --adopt', 'tts', 'tts --split'];
const failing = ['submit -o', 'jobs resolve --adopt', 'tts'];
const few = scenarios.filter(({ name }) => chosen.includes(name));

let built: Built;
beforeAll(async () => {
  built = await buildStorm();
});

describe('a power cut at any of forty moments', () => {
  it.each(few)(
    'causes no loss or second payment during $name, and leaves a file complete or absent',
    async (scenario) => {
      // The others are tested only with the worst state in which a power cut may leave the disk.
      const whatRemains = scenario.name === 'submit -o' ? undefined : (['lost'] as const);
      const part = { whatRemains, every: 40, from: few.indexOf(scenario) };
      const { moments, violations } = await sweepPowerCut(scenario, built.recorder, part);
      expect(moments).toBeGreaterThan(5);
      expect(violations).toEqual([]);
    },
  );
});

describe('a disk failure at any of thirteen operations', () => {
  it.each(few.filter(({ name }) => failing.includes(name)))(
    'causes no loss or second payment during $name, and leads to the correct error',
    async (scenario) => {
      const part = { every: 13, from: few.indexOf(scenario) };
      const { moments, violations } = await sweepFailures(scenario, built.worker, part);
      expect(moments).toBeGreaterThan(0);
      expect(violations).toEqual([]);
    },
  );
});
