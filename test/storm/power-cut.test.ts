import { beforeAll, describe, expect, it } from 'vitest';
import { buildStorm, type Built } from './build.ts';
import { sweepFailures } from './failing-disk.ts';
import { sweepPowerCut } from './power-cut.ts';
import { scenarios } from './scenarios.ts';

// All scenarios, moments and operations: npm run storm -- --power-cut, and --failing-disk.
const chosen = ['submit -o', 'submit -o of Protocol A, inline', 'jobs resolve --adopt', 'tts', 'tts --split'];
const few = scenarios.filter(({ name }) => chosen.includes(name));

let built: Built;
beforeAll(async () => {
  built = await buildStorm();
});

/** Tested with every state in which a power cut or kill -9 may leave the disk; the others only with the worst one. */
const found = ['submit -o', 'tts'];

describe('a power cut at any of forty moments: nothing is paid twice or lost, and a file is complete or absent', () => {
  it.each(few)('during $name', async (scenario) => {
    const whatRemains = found.includes(scenario.name) ? undefined : (['lost'] as const);
    const part = { whatRemains, every: 40, from: few.indexOf(scenario) };
    const { moments, violations } = await sweepPowerCut(scenario, built.recorder, part);
    expect(moments).toBeGreaterThan(5);
    expect(violations).toEqual([]);
  });
});

describe('a disk that fails at any of thirteen operations: nothing is paid twice or lost, and the error is true', () => {
  it.each(few)('during $name', async (scenario) => {
    // All pieces behave alike, so fewer operations are tried.
    const part = { every: scenario.pieces === undefined ? 13 : 67, from: few.indexOf(scenario) };
    const { moments, violations } = await sweepFailures(scenario, built.worker, part);
    expect(moments).toBeGreaterThan(0);
    expect(violations).toEqual([]);
  });
});
