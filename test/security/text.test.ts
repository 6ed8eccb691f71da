import { describe, expect, it } from 'vitest';
import { newUser } from '../support/cli.ts';
import { hurried, runHere } from '../support/one-process.ts';
import { commandsIn } from './commands.ts';
import { reflections, startMirror } from './mirror.ts';

// Escape sequences for colours, title, clipboard, link and cursor; also a bell, a C1 control character, bidirectional
// controls, tag characters and line separators.
const evil =
  '\u001b[31m\u001b]0;title\u0007\u001b]52;c;ZXZpbA==\u0007\u001b]8;;http://evil.example\u001b\\x\r\u0008\u009b2J\u202egpj\u2066\u2028\u{e0041}\u007f';

// The characters that must not be sent to a terminal: control and formatting characters other than the newline.
const unsafe =
  /[\0-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/u;

describe('text from a gateway', () => {
  it.each(reflections)("never controls the terminal if it is in the gateway's %s", async (reflection) => {
    const words = {
      reflection,
      word: () => `x${evil}`,
      text: () => `${evil} said\n${'long '.repeat(20_000)}`,
    };
    const mirror = await startMirror(words);
    const user = newUser(mirror.url);
    for (const [index, command] of commandsIn(user.cwd, reflection).entries()) {
      // Each command runs with --json in one case and without it in the next. `api` always uses --json, because it
      // forwards text unchanged.
      const isJson = command[0] === 'api' || (index + reflections.indexOf(reflection)) % 2 === 0;
      const { code, stdout, stderr } = await runHere(
        [...command, ...(isJson ? ['--json'] : [])],
        user.env,
        '',
        hurried(1000),
      );
      const name = `${command.slice(0, 3).join(' ')}${isJson ? ' --json' : ''}`;
      expect(unsafe.exec(stdout)?.[0], `stdout of ${name}`).toBeUndefined();
      expect(unsafe.exec(stderr)?.[0], `stderr of ${name}`).toBeUndefined();
      expect(stderr.length, `stderr of ${name}`).toBeLessThan(20_000);
      expect(code, `a bug in ${name}: ${stderr}`).not.toBe(1);
      if (isJson) expect(() => JSON.parse(stdout) as unknown, name).not.toThrow();
    }
    await mirror.close();
  });
});
