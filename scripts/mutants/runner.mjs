// Runs the copy's tests for tests.mjs. One vitest serves many mutants, because starting vitest takes seconds.
import { join, relative } from 'node:path';
import { createVitest } from 'vitest/node';

const { PATH } = process.env;
let answer;
let isFirstFailureEnough;

const reporter = {
  onTestCaseResult(test) {
    const { state } = test.result();
    if (state === 'skipped') return;
    answer.ran.push({ id: test.id, ms: Math.ceil(test.diagnostic()?.duration ?? 0) });
    if (state !== 'failed') return;
    answer.failed.push(test.id);
    if (isFirstFailureEnough) void vitest.cancelCurrentRun('test-failure');
  },
  onTestModuleEnd(module) {
    if (module.errors().length > 0) answer.failed.push(relative(process.cwd(), module.moduleId));
  },
};

const vitest = await createVitest('test', {
  ...{ watch: false, update: false, maxWorkers: 1, reporters: [reporter], bail: 1 },
});
const projects = new Map(
  (await vitest.globTestSpecifications()).map((each) => [each.moduleId, each.project]),
);

// `tests` lists files, each with the ids of its tests or 'all'.
process.on('message', async ({ tests, mutant, reached }) => {
  answer = { ran: [], failed: [] };
  isFirstFailureEnough = reached === '';
  process.env.PATH = `${PATH}:mgw-mutant=${mutant}=`;
  process.env.MGW_REACHED = reached;
  const specifications = tests.map(([file, ids]) => {
    const path = join(process.cwd(), file);
    return projects.get(path).createSpecification(path, ids === 'all' ? {} : { testIds: ids });
  });
  const { unhandledErrors } = await vitest.runTestSpecifications(specifications, false);
  if (unhandledErrors.length > 0) answer.failed.push('an error outside tests');
  process.send(answer);
});
process.once('disconnect', () => process.kill(-process.pid, 'SIGKILL'));
process.send([...projects.keys()].map((path) => relative(process.cwd(), path)).sort());
