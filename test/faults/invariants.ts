import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { CliJson, CliResult } from '../support/cli.ts';
import { runHere } from '../support/one-process.ts';

/** The evidence that a test leaves for {@link expectInvariants}. */
export interface Evidence {
  /** The handles of the tasks that the gateway created and charged. */
  created: readonly string[];
  /** The results of every run of the command line. */
  runs: readonly CliResult[];
  /** The user's environment, with the location of the ledger and the key. */
  env: NodeJS.ProcessEnv;
  /** Every folder that mgw may have written to. */
  folders: readonly string[];
  /** The files in which a user has stored the key. */
  keyFiles: readonly string[];
  /** The output paths of results. */
  outputs: readonly string[];
  /** The contents that an output may have: the gateway's result, and any other permitted content. */
  sources: readonly Buffer[];
  key: string;
  /** The requests to servers that must never receive the key. */
  strangers: readonly string[];
}

/**
 * Checks the invariants of every row of docs/faults.md. The gateway has created at most `creations` tasks. Every
 * created task is in the ledger, or its job is `unknown`. Each output is absent or equal to its source. The key appears
 * only in the config, the environment and requests to the base URL. There is no stack trace, and the ledger loads.
 * Returns the ledger's jobs.
 */
export async function expectInvariants(evidence: Evidence, creations: number): Promise<CliJson['job'][]> {
  expect(evidence.created.length, 'creations over the first run and the rerun').toBeLessThanOrEqual(
    creations,
  );
  expectOutputs(evidence);
  expectNoTraces(evidence.runs);
  expectKeySafe(evidence);
  const jobs = await ledgerOf(evidence.env);
  expectRecorded(evidence.created, jobs);
  return jobs;
}

/** Returns the jobs that `mgw jobs ls --all --json` lists. */
export async function ledgerOf(env: NodeJS.ProcessEnv): Promise<CliJson['job'][]> {
  const listed = await runHere(['--json', 'jobs', 'ls', '--all'], env);
  expect(listed.code, `the ledger does not load: ${listed.stdout}${listed.stderr}`).toBe(0);
  return (listed.json as unknown as { jobs: CliJson['job'][] }).jobs;
}

const stackLine = /^\s+at .*[:(]/m;

function expectRecorded(created: readonly string[], jobs: readonly CliJson['job'][]): void {
  const missing = created.filter((handle) => !jobs.some((job) => job.handle === handle));
  const unknown = jobs.filter(({ state }) => state === 'unknown');
  expect(missing.length, `tasks that the ledger has lost: ${missing.join(' ')}`).toBeLessThanOrEqual(
    unknown.length,
  );
}

function expectOutputs({ outputs, sources }: Evidence): void {
  for (const path of outputs) {
    const bytes = contentOf(path);
    const isSource = bytes === undefined || sources.some((source) => source.equals(bytes));
    expect(isSource, `${path} is neither absent nor equal to its source`).toBe(true);
  }
}

function contentOf(path: string): Buffer | undefined {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() ? readFileSync(path) : undefined;
}

function expectNoTraces(runs: readonly CliResult[]): void {
  for (const { stdout, stderr, code } of runs) {
    expect(`${stdout}\n${stderr}`).not.toMatch(stackLine);
    expect(code, `a bug: ${stderr}${stdout}`).not.toBe(1);
  }
}

function expectKeySafe({ key, runs, folders, keyFiles, outputs, strangers }: Evidence): void {
  const known = [...keyFiles, ...outputs];
  const places = [
    ...runs.flatMap(({ stdout, stderr }) => [
      ['stdout', stdout],
      ['stderr', stderr],
    ]),
    ...strangers.map((said) => ['a server that must not see it', said]),
    ...folders.flatMap(textsIn).filter(([path = '']) => !known.includes(path)),
  ];
  for (const [place = '', text = ''] of places) {
    const found = findKey(text, key);
    expect(found, `the key is in ${place}`).toBeUndefined();
  }
}

// Returns the paths, link targets and contents of everything below a folder, byte for byte.
function textsIn(folder: string): string[][] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return [['a name', path], ...textsIn(path)];
    if (entry.isSymbolicLink()) return [['a link', readlinkSync(path)]];
    return entry.isFile() ? [[path, `${path}\n${readFileSync(path, 'latin1')}`]] : [];
  });
}

/**
 * Returns the encoding in which the text contains the key or any 12 consecutive characters of it; undefined if the text
 * contains neither.
 */
export function findKey(text: string, key: string): string | undefined {
  if (text === '') return undefined;
  const folded = text.toLowerCase();
  return spellingsOf(key).find(
    (form) => folded.includes(form) || (/[A-Z]/.test(form) && text.includes(form)),
  );
}

const piece = 12;
const spellings = new Map<string, string[]>();

function spellingsOf(key: string): string[] {
  const known = spellings.get(key);
  if (known !== undefined) return known;
  const pieces = Array.from({ length: key.length - piece + 1 }, (_, at) => key.slice(at, at + piece));
  const forms = [...new Set([...pieces.flatMap(escaped), ...[0, 1, 2].map((offset) => base64(key, offset))])];
  spellings.set(key, forms);
  return forms;
}

function escaped(text: string): string[] {
  const each = (form: (byte: string) => string): string =>
    [...Buffer.from(text)].map((byte) => form(byte.toString(16).padStart(2, '0'))).join('');
  return [text, each((hex) => hex), each((hex) => `%${hex}`), each((hex) => `\\u00${hex}`)].map((form) =>
    form.toLowerCase(),
  );
}

// Returns the Base64 digits that the key alone determines, regardless of the text around it.
function base64(key: string, offset: number): string {
  const digits = Buffer.concat([Buffer.alloc(offset), Buffer.from(key)]).toString('base64');
  return digits.slice(Math.ceil((offset * 8) / 6), -4).slice(0, 20);
}
