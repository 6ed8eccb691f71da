import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { checkKey, keyOfFile, readKeyFile } from '../../src/config/key.ts';
import type { MgwError } from '../../src/errors.ts';
import { anyCharacter } from '../support/any-character.ts';

describe('checkKey', () => {
  it.each(['sk-abc', 'k', 'AKIA/+=_-.~:;,!$%&*()[]{}|<>?@^#'])('accepts %s', (key) => {
    expect(checkKey(key)).toBe(key);
  });

  it.each([
    ['', /empty/],
    ['  \n', /empty/],
    ['Bearer secretword', /begins with "Bearer "/],
    ['bearer\tsecretword', /begins with "Bearer "/],
    ['"secretword"', /quotes/],
    ["'secretword'", /quotes/],
    ['“secretword”', /quotes/],
    ['secretword\n', /line break/],
    ['secret\0word', /control character/],
    ['\u{feff}secretword', /control character/],
    ['secret word', /white space/],
    ['secretwörd', /not ASCII/],
    [`secretword${'x'.repeat(5000)}`, /longer/],
  ])('refuses %j, and does not quote it in the error', (key, why) => {
    expect(() => checkKey(key)).toThrow(why);
    expect(() => checkKey(key)).not.toThrow(/secret|w[oö]rd/);
  });

  it('accepts only visible ASCII without quotes', () => {
    fc.assert(
      fc.property(fc.string({ unit: anyCharacter }), (key) => {
        let isAccepted = true;
        try {
          checkKey(key);
        } catch {
          isAccepted = false;
        }
        expect(isAccepted).toBe(/^[\x21\x23-\x26\x28-\x5f\x61-\x7e]+$/.test(key));
      }),
    );
  });
});

describe('keyOfFile', () => {
  it('removes only one line break at the end', () => {
    expect(keyOfFile('sk-1\n')).toBe('sk-1');
    expect(keyOfFile('sk-1\r\n')).toBe('sk-1');
    expect(keyOfFile('sk-1')).toBe('sk-1');
    expect(keyOfFile('sk-1\n\n')).toBe('sk-1\n');
    expect(keyOfFile('sk-1 ')).toBe('sk-1 ');
  });
});

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

describe('readKeyFile', () => {
  it("returns a file's text unchanged", () => {
    writeFileSync(file, 'sk-1\n');
    expect(readKeyFile(file)).toBe('sk-1\n');
  });

  it('reports the reason if a file cannot be read', () => {
    expect(refusal(path.join(folder, 'none'))).toContain('it does not exist');
    expect(refusal(folder)).toContain('it is a folder');
    writeFileSync(file, 'x'.repeat(64 * 1024 + 1));
    expect(refusal(file)).toContain('larger than 64 KiB');
  });

  it('reads a pipe, such as a process substitution', () => {
    const pipe = path.join(folder, 'pipe');
    expect(spawnSync('mkfifo', [pipe]).status).toBe(0);
    const writer = spawnSync('sh', ['-c', `printf 'sk-%s\\n' piped > "$0" & `, pipe], { stdio: 'ignore' });
    expect(writer.status).toBe(0);
    expect(readKeyFile(pipe)).toBe('sk-piped\n');
  });
});
