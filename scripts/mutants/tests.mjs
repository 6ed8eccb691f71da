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

/** A process that runs the copy's tests. */
export class Runner {
  /**
   * All test files except this tool's own tests, which use the mutants' runtime themselves, and the test that compares
   * the text of the source, which differs in the copy.
   */
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
    this.files = files.filter((file) => !/^test\/(mutants\/|simulation\/plants\.)/.test(file));
  }

  /**
   * Runs the given tests until the first failure.
   * @returns undefined if the tests exceed `limitMs` or end their process
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
      // The process has ended.
    }
  }
}

/** Determines the tests that reach each mutant, including in child processes, and whether a test detects a mutant. */
export class Tests {
  #tree;
  /** The tests that reach each mutant, quickest first, by the mutant's number. A whole file has its path as its id. */
  #reaching = new Map();
  /** The number of a source file's mutants that a test file has killed. */
  #kills = new Map();
  /** Whether each test passes without a mutant when it runs alone, by test id. */
  #passes = new Map();
  /** The test files that pass without a mutant. */
  #fit = new Set();

  constructor(tree) {
    this.#tree = tree;
    mkdirSync(join(tree, 'reached'), { recursive: true });
  }

  isRecorded(file) {
    return existsSync(join(this.#tree, recordOf(file)));
  }

  /** Runs a test file without a mutant, and records the mutants that its tests reach. */
  async record(runner, file) {
    const logs = mkdtempSync(join(this.#tree, 'log-'));
    const answer = await runner.run([[file, 'all']], 600_000, { reached: logs });
    const isFit = answer?.failed.length === 0;
    const ms = answer?.ran.reduce((sum, each) => sum + each.ms, 0);
    // A mutant reached outside any single test may affect the whole file.
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

  /** Reads the results of {@link record}. */
  read(files) {
    const tests = files.flatMap((file) => JSON.parse(readFileSync(join(this.#tree, recordOf(file)), 'utf8')));
    for (const { file } of tests) this.#fit.add(file);
    for (const { numbers, ...test } of tests.sort((a, b) => a.ms - b.ms))
      for (const number of numbers) this.#reaching.set(number, [...(this.#reaching.get(number) ?? []), test]);
  }

  /**
   * Runs the tests that reach a mutant until one fails. Runs quick tests first, and prefers the source's own test file
   * and files that have killed other mutants of the same source. Skips tests that would exceed the limit.
   */
  async judge(runner, { number, path }, limitMs) {
    const kills = this.#kills.get(path) ?? new Map();
    this.#kills.set(path, kills);
    const killsOf = ({ file }) => kills.get(file) ?? 0;
    const ownFile = path.replace(/^src/, 'test').replace(/\.ts$/, '.test.ts');
    const isOwn = ({ file }) => file === ownFile;
    const order = (test) => (test.ms + 50) / (1 + killsOf(test) + (isOwn(test) ? 4 : 0));
    const reaching = this.#reaching.get(number) ?? [];
    const all = [...reaching.filter(isOwn), ...reaching.filter((test) => !isOwn(test))];
    let tests = all.filter((_, index) => index === 0 || total(all.slice(0, index + 1)) <= limitMs);
    tests.sort((a, b) => order(a) - order(b));
    if (tests.length === 0) return 'unreached';
    for (let budget = 2000; ; budget *= 3) {
      tests = tests.filter(({ id }) => this.#passes.get(id) !== false);
      if (tests.length === 0) return (await this.#detects(runner, ownFile, number)) ? 'killed' : 'survived';
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

  // If a test has cached a value, later tests of its file do not reach the value's mutants, but may detect them.
  async #detects(runner, file, mutant) {
    if (!this.#fit.has(file)) return false;
    const answer = await runner.run([[file, 'all']], 600_000, { mutant });
    return answer === undefined || answer.failed.length > 0;
  }

  // A test may depend on an earlier test of its file that does not reach the mutant.
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

// Returns the total time, in ms, including the start of one process per file.
function total(tests) {
  return tests.reduce((sum, { ms }) => sum + ms, 500 * new Set(tests.map(({ file }) => file)).size);
}

function limitOf(tests) {
  return 20_000 + 5 * total(tests);
}
