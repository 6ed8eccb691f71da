import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { main } from '../../src/cli/main.ts';
import type { Ran } from './shell.ts';

/** Runs `mgw` in this very process, as a person whose home is empty: for what depends on no file and no stream. */
export async function runHere(argv: string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const home = mkdtempSync(join(tmpdir(), 'mgw-home-'));
  const [stdout, stderr] = [collector(), collector()];
  const before = process.exitCode;
  const places = { HOME: home, MGW_STATE_DIR: join(home, 'state'), MGW_CONFIG_DIR: join(home, 'config') };
  await main(argv, { stdin: Readable.from([]), stdout, stderr, env: { ...places, ...env } });
  const code = Number(process.exitCode ?? 0);
  process.exitCode = before;
  rmSync(home, { recursive: true });
  return { code, stdout: stdout.text(), stderr: stderr.text() };
}

/** The words of a plain command line: quotes are the only thing of a shell it may hold. */
export function wordsOf(line: string): string[] {
  const words = [...line.matchAll(/"([^"]*)"|(\S+)/g)];
  return words.map(([, quoted, bare]) => quoted ?? bare ?? '');
}

function collector(): Writable & { text: () => string } {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      chunks.push(chunk);
      done();
    },
  });
  return Object.assign(stream, { text: () => Buffer.concat(chunks).toString('utf8') });
}
