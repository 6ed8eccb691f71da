import type { Reporter, SerializedError, TestModule } from 'vitest/node';

/**
 * Prints `N passed, N failed` as the last line, for scripts that read only this line. Before the last line, prints a
 * line `FAILED FILE: NAME` for each failed test, so the failed tests are at the end of a long log.
 */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const inState = (state: string): typeof tests => tests.filter((test) => test.result().state === state);
    const failures = [
      ...inState('failed').map((test) => `${test.module.relativeModuleId}: ${test.fullName}`),
      ...modules
        .filter((module) => module.children.size === 0 && !module.ok())
        .map((module) => `${module.relativeModuleId}: could not be loaded`),
      ...errors.map((error) => `outside the tests: ${error.message}`),
    ];
    const skipped = inState('skipped').length;
    process.on('exit', (code) => {
      // A suite that could not start is reported as at least one failure.
      const failed = Math.max(failures.length, code === 0 ? 0 : 1);
      const line = `${inState('passed').length} passed, ${failed} failed`;
      process.stdout.write(failures.map((failure) => `FAILED ${failure.replace(/\s+/g, ' ')}\n`).join(''));
      process.stdout.write(`${line}${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
    });
  }
}
