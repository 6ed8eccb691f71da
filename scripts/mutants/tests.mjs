import { fork } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { clearTimeout, setTimeout } from 'node:timers';
import { recordOf } from './tree.mjs';

/** A process that runs tests of the copy. */
export class Runner {
  /** All test files except those of the tool, which use its runtime. */
  files = [];
  #tree;
  #child;

  static async open(tree) {
    const runner = new Runner();
    runner.#tree = tree;
    await runner.#start();
    return runner;
  }

  async #start() {
    const options = { cwd: this.#tree, stdio: ['ignore', 'ignore', 'ignore', 'ipc'], detached: true };
    this.#child = fork(join(import.meta.dirname, 'runner.mjs'), options);
    const [files] = await once(this.#child, 'message');
    this.files = files.filter((file) => !file.startsWith('test/mutants/'));
  }

  /**
   * Runs tests of some files, up to the first failure.
   * @returns undefined if they take too long or end their process
   */
  async run(tests, limitMs, { mutant = -1, reached = '' } = {}) {
    const child = this.#child;
    child.send({ tests, mutant, reached });
    const answer = await new Promise((resolve) => {
      const end = (value) => {
        clearTimeout(timer);
        child.removeAllListeners();
        resolve(value);
      };
      const timer = setTimeout(end, limitMs);
      child.once('message', end).once('exit', () => end());
    });
    if (answer === undefined) {
      this.close();
      await this.#start();
    }
    return answer;
  }

  close() {
    try {
      process.kill(-this.#child.pid, 'SIGKILL');
    } catch {
      // The process has already ended.
    }
  }
}

/**
 * Determines the tests that reach each mutant, including in the processes that they start, and
 * whether a test notices a mutant.
 */
export class Tests {
  #tree;
  /** The tests that reach a mutant, by its number, the quickest first. A whole file has its path as id. */
  #reaching = new Map();
  /** The number of mutants of a source file that the tests of a file have killed. */
  #kills = new Map();
  /** Whether a test passes without a mutant when it runs alone, by its id. */
  #passes = new Map();

  constructor(tree) {
    this.#tree = tree;
    mkdirSync(join(tree, 'reached'), { recursive: true });
  }

  isRecorded(file) {
    return existsSync(join(this.#tree, recordOf(file)));
  }

  /** Runs a file without a mutant, and records what its tests reach. */
  async record(runner, file) {
    const logs = mkdtempSync(join(this.#tree, 'log-'));
    const answer = await runner.run([[file, 'all']], 600_000, { reached: logs });
    const isFit = answer?.failed.length === 0;
    const ms = answer?.ran.reduce((sum, each) => sum + each.ms, 0);
    // A mutant that is reached outside a single test may affect the whole file.
    const tests = isFit
      ? [...answer.ran.map((each) => ({ ...each, log: each.id })), { id: file, ms, log: 'all' }]
      : [];
    const logged = new Set(readdirSync(logs));
    const reached = tests
      .filter(({ log }) => logged.has(log))
      .map(({ id, ms, log }) => {
        const numbers = readFileSync(join(logs, log), 'utf8').trim().split(' ').map(Number);
        return { file, id, ms, numbers: [...new Set(numbers)] };
      });
    rmSync(logs, { recursive: true });
    writeFileSync(join(this.#tree, recordOf(file)), JSON.stringify(reached));
    return isFit;
  }

  /** Reads what {@link record} has written. */
  read(files) {
    const tests = files.flatMap((file) => JSON.parse(readFileSync(join(this.#tree, recordOf(file)), 'utf8')));
    for (const { numbers, ...test } of tests.sort((a, b) => a.ms - b.ms))
      for (const number of numbers) this.#reaching.set(number, [...(this.#reaching.get(number) ?? []), test]);
  }

  /**
   * Runs the tests that reach a mutant until one fails. Runs quick tests first, with preference for
   * files that killed other mutants of the same source. Skips slow tests that exceed the limit.
   */
  async judge(runner, { number, path }, limitMs) {
    const kills = this.#kills.get(path) ?? new Map();
    this.#kills.set(path, kills);
    const killsOf = ({ file }) => kills.get(file) ?? 0;
    const order = (test) => (test.ms + 50) / (1 + killsOf(test));
    const all = this.#reaching.get(number) ?? [];
    let tests = all.filter((_, index) => index === 0 || total(all.slice(0, index + 1)) <= limitMs);
    tests.sort((a, b) => order(a) - order(b));
    if (tests.length === 0) return 'unreached';
    for (let budget = 2000; ; budget *= 3) {
      tests = tests.filter(({ id }) => this.#passes.get(id) !== false);
      if (tests.length === 0) return 'survived';
      const fit = tests.findIndex((_, index) => total(tests.slice(0, index + 1)) > budget);
      const some = tests.slice(0, fit === -1 ? tests.length : Math.max(1, fit));
      const answer = await runner.run(grouped(some), limitOf(some), { mutant: number });
      if (answer === undefined) return 'killed';
      for (const failed of answer.failed) {
        const test = some.find(({ id }) => id === failed);
        if (test !== undefined && !(await this.#passesAlone(runner, test))) continue;
        if (test !== undefined) kills.set(test.file, killsOf(test) + 1);
        return 'killed';
      }
      if (answer.failed.length === 0) tests = tests.slice(some.length);
    }
  }

  // A test may need an earlier one of its file, which does not reach the mutant.
  async #passesAlone(runner, test) {
    if (!this.#passes.has(test.id)) {
      const answer = await runner.run(grouped([test]), limitOf([test]));
      this.#passes.set(test.id, answer?.failed.length === 0);
    }
    return this.#passes.get(test.id);
  }
}

function grouped(tests) {
  const files = new Map();
  for (const { file, id } of tests) {
    const ids = files.get(file) ?? [];
    files.set(file, id === file || ids === 'all' ? 'all' : [...ids, id]);
  }
  return [...files];
}

// ms. Each file gets a process.
function total(tests) {
  return tests.reduce((sum, { ms }) => sum + ms, 500 * new Set(tests.map(({ file }) => file)).size);
}

function limitOf(tests) {
  return 20_000 + 5 * total(tests);
}
