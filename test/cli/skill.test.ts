import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { newUser } from '../support/cli.ts';

test('skill install writes the skill, and replaces a changed skill only with --force', async () => {
  const user = newUser();
  const path = join(user.cwd, '.claude', 'skills', 'mgw', 'SKILL.md');
  const first = await user.run(['skill', 'install']);
  expect(first).toMatchObject({ code: 0, stdout: `${path}\n` });
  expect(readFileSync(path, 'utf8')).toBe(readFileSync('docs/skill/SKILL.md', 'utf8'));
  writeFileSync(path, 'mine');
  const second = await user.run(['skill', 'install', '--json']);
  expect(second.code).toBe(10);
  expect(second.json.error.next).toEqual(['mgw', 'skill', 'install', '--force']);
  expect(readFileSync(path, 'utf8')).toBe('mine');
  expect((await user.run(['skill', 'install', '--force'])).code).toBe(0);
  expect(readFileSync(path, 'utf8')).toContain('same key, same job');
});

test('skill install --user does not write to the current folder if HOME is empty', async () => {
  const user = newUser();
  const run = await user.run(['skill', 'install', '--user'], { env: { HOME: '' } });
  expect(run).toMatchObject({ code: 2, stdout: '' });
  expect(run.stderr).toContain('This user has no home folder. Set HOME, or name a folder with --dir.');
  expect(existsSync(join(user.cwd, '.claude'))).toBe(false);
});
