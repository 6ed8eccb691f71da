import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildStorm } from './build.ts';
import { scenarios } from './power-cut-scenarios.ts';
import { sweepPowerCut } from './power-cut.ts';

const folder = mkdtempSync(join(tmpdir(), 'mgw-power-cut-'));
let recorder: string;

beforeAll(async () => {
  ({ recorder } = await buildStorm(folder));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Found with all that may remain, kill -9 included; of the others only the worst. All of it: npm run storm -- --power-cut. */
const found = ['submit -o', 'tts'];

describe('a power cut at one moment of three: nothing is paid twice or lost, a file is whole or absent', () => {
  it.each(scenarios)('of $name', async (scenario) => {
    const whatRemains = found.includes(scenario.name) ? undefined : (['lost'] as const);
    const part = { whatRemains, every: 3, from: scenarios.indexOf(scenario) };
    const { moments, violations } = await sweepPowerCut(scenario, recorder, part);
    expect(moments).toBeGreaterThan(10);
    expect(violations).toEqual([]);
  });
});
