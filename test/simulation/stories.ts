import type { Plan } from './plan.ts';

/** Schedules that once broke a promise, shrunk, by what they broke. They are played with the tests. */
export const stories: Record<string, Plan> = {};
