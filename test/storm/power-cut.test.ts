import { beforeAll, describe, expect, it } from 'vitest';
import { buildStorm, type Built } from './build.ts';
import { sweepFailures } from './failing-disk.ts';
import { sweepPowerCut } from './power-cut.ts';
import { scenarios } from './scenarios.ts';

// `npm run storm -- --power-cut` and `--failing-disk` try all scenarios, moments and operations.
const chosen = ['submit -o', 'submit -o of Protocol A, inline', 'jobs resolve --adopt', 'tts', 'tts --split'];
const few = scenarios.filter(({ name }) => chosen.includes(name));

let built: Built;
beforeAll(async () => {
  built = await buildStorm();
});

/**
 * Scenarios that are tested with every state in which a power cut or kill -9 may leave the disk. The others are tested
 * only with the worst state.
 */
const found = ['submit -o', 'tts'];

describe('a power cut at any of forty moments', () => {
  it.each(few)(
    'causes no loss or second payment during $name, and leaves a file complete or absent',
    async (scenario) => {
      const whatRemains = found.includes(scenario.name) ? undefined : (['lost'] as const);
      const part = { whatRemains, every: 40, from: few.indexOf(scenario) };
      const { moments, violations } = await sweepPowerCut(scenario, built.recorder, part);
      expect(moments).toBeGreaterThan(5);
      expect(violations).toEqual([]);
    },
  );
});

describe('a disk failure at any of thirteen operations', () => {
  it.each(few)(
    'causes no loss or second payment during $name, and leads to the correct error',
    async (scenario) => {
      // All pieces of split text behave alike, so fewer operations are tried.
      const part = { every: scenario.pieces === undefined ? 13 : 67, from: few.indexOf(scenario) };
      const { moments, violations } = await sweepFailures(scenario, built.worker, part);
      expect(moments).toBeGreaterThan(0);
      expect(violations).toEqual([]);
    },
  );
});
