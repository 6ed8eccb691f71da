import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Test files that take longer than their length suggests, mostly because they start processes. */
const slowest = [
  'test/storm/',
  'test/batch/fleet/',
  'test/gallery/browser/',
  'test/faults/',
  'test/cli/',
  'test/docs/',
  'test/batch/',
  'test/package.test.ts',
  'test/ledger/',
  'test/security/patterns.test.ts',
];

/**
 * Orders test files: first the files that need a separate process, then the slowest files. Otherwise, one worker could
 * have a slow file left at the end. A new machine has no recorded durations, so this file lists the slow files.
 */
export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { root } = this.ctx.config;
    const rank = ({ project, moduleId }: TestSpecification): number => {
      if (project.config.isolate) return -1;
      const index = slowest.findIndex((each) => moduleId.startsWith(`${root}/${each}`));
      return index === -1 ? slowest.length : index;
    };
    return (await super.sort(files)).sort((one, other) => rank(one) - rank(other));
  }
}
