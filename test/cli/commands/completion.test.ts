import { expect, it } from 'vitest';
import { newUser } from '../../support/cli.ts';

it.each([
  ['bash', 'complete -F _mgw mgw'],
  ['zsh', '#compdef mgw'],
  ['fish', 'complete -c mgw'],
])('prints a script for %s', async (shell, line) => {
  const { code, stdout, stderr } = await newUser().run(['completion', shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain(line);
  expect(stdout).toContain('submit');
});

it('refuses another shell and names those it knows', async () => {
  const { code, stdout, stderr } = await newUser().run(['completion', 'tcsh']);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain('bash, zsh, fish');
});
