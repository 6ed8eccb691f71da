import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { readKeyFile } from '../../src/config/key.ts';
import type { MgwError } from '../../src/errors.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'mgw-key-'));
const file = path.join(folder, 'key');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function refusal(name: string): string {
  try {
    readKeyFile(name);
  } catch (error) {
    expect(error).toMatchObject({ name: 'MgwError', code: 'config', exitCode: 2 });
    return (error as MgwError).message;
  }
  throw new Error('it was read');
}

it('reads a key file as it is', () => {
  writeFileSync(file, 'sk-1\n');
  expect(readKeyFile(file)).toBe('sk-1\n');
});

it('says why a file cannot be read', () => {
  expect(refusal(path.join(folder, 'none'))).toContain('it does not exist');
  expect(refusal(folder)).toContain('it is a folder');
  writeFileSync(file, 'x'.repeat(64 * 1024 + 1));
  expect(refusal(file)).toContain('larger than 64 KiB');
});

it('reads a pipe, as process substitution gives one', () => {
  const pipe = path.join(folder, 'pipe');
  expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
  const writer = spawnSync('sh', ['-c', `printf 'sk-%s\\n' piped > "$0" & `, pipe], { stdio: 'ignore' });
  expect(writer.status).toBe(0);
  expect(readKeyFile(pipe)).toBe('sk-piped\n');
});
