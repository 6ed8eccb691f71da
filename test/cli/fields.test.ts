import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { userHere } from '../support/one-process.ts';

it('--fields prints only the listed members of the JSON document and those that describe the outcome', async () => {
  const user = userHere();
  const { json } = await user.run(['config', 'list', '--fields', 'key,value']);
  expect(Object.keys(json)).toEqual(['ok', 'exit_code', 'settings']);
  const settings = json['settings'] as Record<string, unknown>[];
  expect(settings.find(({ key }) => key === 'retries')).toEqual({ key: 'retries', value: 5 });
  const failed = await user.run(['jobs', 'show', 'job_x', '--fields=id']);
  expect(failed.json).toMatchObject({ ok: false, exit_code: 2, error: { code: 'usage' } });
  expect((await user.run(['config', 'list', '--fields', 'a b'])).code).toBe(2);
});

it.each([
  ['keys', ' Did you mean key?'],
  ['sum', ' Available: ok, exit_code'],
])(
  '--fields warns on stderr that the document has no member %s, and prints the other members',
  async (name, hint) => {
    const { code, stderr } = await userHere().run(['config', 'list', '--fields', name]);
    expect(code).toBe(0);
    expect(stderr).toContain(`the JSON document has no member ${name}.${hint}`);
  },
);

it.each([
  ['jobs', 'ls', '--fields', 'id,state'],
  ['config', 'list', '--fields', 'value,handle'],
])('--fields does not warn about an empty list or an optional member: mgw %s %s %s %s', async (...args) => {
  expect((await userHere().run(['--sandbox', ...args])).stderr).not.toContain('no member');
});

it.each([
  ['{slug}', ['video', 'submit', 'a boat', '-m', 'vendor-h3-mini']],
  ['{a-b}', ['video', 'submit', 'a boat', '-m', 'vendor-h3-mini']],
  ['{slug}', ['tts', 'a boat']],
])(
  'the output %s is refused, because it is a template, before the ledger is opened (mgw %s)',
  async (template, command) => {
    const user = userHere();
    const output = `${template}.mp4`;
    const { code, stderr } = await user.run(['--sandbox', ...command, '-o', output]);
    expect(code).toBe(2);
    expect(stderr).toContain(`${template} is not known before the job exists`);
    expect(stderr).toContain('Nothing was sent');
    expect(readdirSync(user.cwd)).not.toContain(output);
    expect(existsSync(join(user.cwd, 'state', 'jobs'))).toBe(false);
  },
);
