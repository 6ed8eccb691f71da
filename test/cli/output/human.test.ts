import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { shellWord } from '../../../src/cli/output/human.ts';

it.each(['a b', "it's", "task\u001b[31m\r\u202e'\\", '\u{e0041}', '$HOME `x`'])(
  'the word %j is typed as it is, and holds no control character',
  (word) => {
    const typed = shellWord(word);
    expect(typed).toMatch(/^\P{C}+$/u);
    const env = { LC_ALL: 'C.UTF-8' };
    expect(execFileSync('bash', ['-c', `printf %s ${typed}`], { env, encoding: 'utf8' })).toBe(word);
  },
);
