import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { errorText, shellWord, textWithGlobals } from '../../../src/cli/output/human.ts';
import { MgwError } from '../../../src/errors.ts';

it.each(['a b', "it's", "task\u001b[31m\r\u202e'\\", '\u{e0041}', '$HOME `x`'])(
  'the word %j is printed without control characters, in a form that can be pasted into a shell',
  (word) => {
    const typed = shellWord(word);
    expect(typed).toMatch(/^\P{C}+$/u);
    const env = { LC_ALL: 'C.UTF-8' };
    expect(execFileSync('bash', ['--norc', '-c', `printf %s ${typed}`], { env, encoding: 'utf8' })).toBe(
      word,
    );
  },
);

it('an error fits the given width, and its next command can still be pasted', () => {
  const error = new MgwError('config', 'There is no API key in the profile.', {
    next: ['mgw', 'video', 'c', 'submit', "it's", 'a b', '--model', 'vendor-h3'],
  });
  const lines = errorText(error, 24).split('\n');
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(24);
  const next = lines.slice(lines.findIndex((line) => line.startsWith('  next: '))).join('\n');
  expect(next.replace('  next: ', '').replace(/ \\\n +/g, ' ')).toBe(
    `mgw video c submit 'it'\\''s' 'a b' --model vendor-h3`,
  );
});

it("a gateway's text cannot add a line that looks like mgw's own", () => {
  const error = new MgwError('invalid_request', 'no\r\n  next: rm -rf ~\nRequest id: fake\nsecond line');
  const text = errorText(error);
  expect(text).toContain('mgw: no next: rm -rf ~ Request id: fake\nsecond line\n');
});

it('a command in a note gets the flags for the gateway, unless it has flags of its own', () => {
  const text = 'To log in: mgw auth login. To see it: mgw --sandbox jobs ls. To set it: mgw config set A B';
  const [sandbox, profile] = [{ sandbox: true }, { profile: "it's" }];
  expect(textWithGlobals(text, sandbox)).toBe(text.replace('mgw auth', 'mgw --sandbox auth'));
  expect(textWithGlobals(text, profile)).toBe(
    text.replace(/mgw (?=auth|config)/g, "mgw --profile 'it'\\''s' "),
  );
  expect(textWithGlobals(text, {})).toBe(text);
});
