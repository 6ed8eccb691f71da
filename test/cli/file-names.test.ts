import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { onEnd } from '../support/clean-ups.ts';
import { newShell, type Shell } from '../support/shell.ts';

function shellWithFile(): Shell {
  const shell = newShell();
  onEnd(() => {
    shell.close();
  });
  writeFileSync(join(shell.home, 'p.txt'), 'A paper boat.\n');
  return shell;
}

const suggestion = (stderr: string): string => /next: (.*(?:\n {4}.*)*)/.exec(stderr)?.[1] ?? '';

describe('text that is the name of a file', () => {
  it.each([
    ['mgw tts p.txt -o a.mp3 --dry-run', 'mgw tts --file p.txt -o a.mp3 --dry-run'],
    ['mgw tts -o a.mp3 --dry-run -- @p.txt', 'mgw tts -o a.mp3 --dry-run --file p.txt --'],
    ['mgw responses -m text-1 p.txt --dry-run', 'mgw responses -m text-1 --file p.txt --dry-run'],
    [
      'mgw video submit @p.txt -m vendor-h3-mini --dry-run',
      "sh -c 'mgw video submit - -m vendor-h3-mini --dry-run < p.txt'",
    ],
    [
      'mgw video c submit --prompt p.txt -m vendor-h3-mini --dry-run',
      "sh -c 'mgw video c submit - -m vendor-h3-mini --dry-run < p.txt'",
    ],
    [
      'mgw video submit -m vendor-h3-mini --prompt=@p.txt --dry-run',
      "sh -c 'mgw video submit -m vendor-h3-mini - --dry-run < p.txt'",
    ],
  ])('is refused, with the command that reads the file: %s', async (command, next) => {
    const shell = shellWithFile();
    const refused = await shell.run(command);
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toContain('p.txt is the name of a file');
    expect(suggestion(refused.stderr)).toBe(next);
    const sent = await shell.run(next);
    expect(sent.code, sent.stderr).toBe(0);
    expect(sent.stdout).toContain('"A paper boat."');
  });

  it('is sent as text if it is read from standard input', async () => {
    const shell = shellWithFile();
    const speech = await shell.run('echo p.txt | mgw tts - -o a.mp3 --dry-run');
    expect(speech.stdout).toContain('"text": "p.txt"');
    const video = await shell.run('echo @p.txt | mgw video submit - -m vendor-h3-mini --dry-run');
    expect(video.stdout).toContain('"prompt": "@p.txt"');
  });

  it('is refused if the file is a symbolic link, but not if it is a folder', async () => {
    const shell = shellWithFile();
    symlinkSync('nowhere', join(shell.home, 'link.txt'));
    expect((await shell.run('mgw tts link.txt -o a.mp3 --dry-run')).code).toBe(2);
    expect((await shell.run('mgw tts .bin -o a.mp3 --dry-run')).code).toBe(0);
  });

  it('is sent as text if it has no dot or slash, such as the name of the output', async () => {
    const shell = shellWithFile();
    writeFileSync(join(shell.home, 'hello'), 'audio');
    expect((await shell.run('mgw tts hello -o hello --force --dry-run')).code).toBe(0);
  });

  it('is not replaced if the name occurs twice in the command', async () => {
    const shell = shellWithFile();
    const { code, stderr } = await shell.run('mgw tts p.txt -o p.txt --dry-run');
    expect(code).toBe(2);
    expect(suggestion(stderr)).toBe('mgw tts --help');
  });
});

it.each(['--file', '--prompt-file=p.txt'])(
  'video submit %s explains how to read a prompt from a file',
  async (flag) => {
    const { code, stderr } = await shellWithFile().run(`mgw video c submit ${flag} -m vendor-h3-mini`);
    expect(code).toBe(2);
    expect(stderr).toContain('To read the prompt from a file: mgw video c submit - < FILE');
  },
);
