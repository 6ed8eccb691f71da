import type { Reporter, TestCase, TestModule } from 'vitest/node';

/** Prints the plain line `N passed, N failed` last, for scripts that read only that. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const results = modules.flatMap((module) => [...module.children.allTests()]).map(stateOf);
    const count = (state: string): number => results.filter((result) => result === state).length;
    const broken =
      modules.filter((module) => module.children.size === 0 && !module.ok()).length + errors.length;
    const skipped = count('skipped');
    process.on('exit', (code) => {
      // A suite that could not even start has failed once at least.
      const failed = Math.max(count('failed') + broken, code === 0 ? 0 : 1);
      const line = `${count('passed')} passed, ${failed} failed`;
      process.stdout.write(`${line}${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
    });
  }
}

function stateOf(test: TestCase): string {
  return test.result().state;
}
