import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { invalidArgument } from '../../src/cli/encoding.ts';

const mgw = [process.execPath, resolve('bin/mgw.js')];

/** Runs a shell script in a new folder, with mgw's command as `"$@"`. Returns the exit code and the message. */
function runShell(script: string, command = mgw): [code: number | null, message: string] {
  const folder = mkdtempSync(join(tmpdir(), 'mgw-encoding-'));
  const env = { PATH: process.env['PATH'], HOME: folder, MGW_STATE_DIR: join(folder, 'state') };
  const run = spawnSync('sh', ['-c', script, 'sh', ...command], { cwd: folder, env, encoding: 'utf8' });
  return [run.status, run.stderr.split('\n')[0] ?? ''];
}

describe.skipIf(process.platform !== 'linux')('a command whose text is not UTF-8 exits with 2', () => {
  it('if the text is in an argument', () => {
    const script = String.raw`"$@" tts "$(printf 'caf\351')" -o x.mp3 --dry-run`;
    const [node = '', ...rest] = mgw;
    for (const command of [mgw, [node, '--no-warnings', ...rest]])
      expect(runShell(script, command)).toEqual([2, 'mgw: Argument 2 is not valid UTF-8.']);
  });

  it("if the text is in the current folder's name", () => {
    const script = String.raw`d=$(printf 'd\351'); mkdir "$d" && cd "$d" && "$@" jobs ls`;
    expect(runShell(script)).toEqual([2, "mgw: The current folder's name is not valid UTF-8."]);
  });

  it('but not if it is a real replacement character', () => {
    const script = String.raw`mkdir 'd�' && cd 'd�' && "$@" tts 'caf�' -o x.mp3 --dry-run`;
    expect(runShell(script)[1]).not.toContain('UTF-8');
  });
});

describe('the number of the argument that is not UTF-8', () => {
  it.each([
    ['node\0mgw.js\0a\0caf\xe9\0', 2],
    ['caf\xe9\0mgw.js\0a\0b\0', undefined],
    ['node\0mgw.js\0\0\xc3\xa9\0', undefined],
    ['', undefined],
  ])('is found in the command line %j', (commandLine, number) => {
    expect(invalidArgument(['a', 'b'], Buffer.from(commandLine, 'latin1'))).toBe(number);
  });
});
