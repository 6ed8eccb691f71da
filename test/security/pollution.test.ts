import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { newUser } from '../support/cli.ts';
import { FaultGateway } from '../faults/gateway.ts';
import { hurried, runHere } from '../support/one-process.ts';
import { commandsIn } from './commands.ts';
import { reflections, startMirror } from './mirror.ts';

const poison = '{"__proto__":{"polluted":"yes"},"constructor":{"prototype":{"polluted":"yes"}}}';
const submit = ['video', 'c', 'submit', '--model', 'vendor-h3-mini', '--prompt', 'x'];

afterEach(() => {
  const seen = ({} as Record<string, unknown>)['polluted'];
  delete (Object.prototype as Record<string, unknown>)['polluted'];
  expect(seen).toBeUndefined();
});

describe('an object prototype', () => {
  it.each(reflections)("is not polluted by a gateway's %s", async (reflection) => {
    const more = JSON.parse(poison) as object;
    const mirror = await startMirror({
      reflection,
      word: () => '__proto__',
      text: () => 'constructor',
      more,
    });
    const user = newUser(mirror.url);
    for (const command of commandsIn(user.cwd, reflection))
      expect((await runHere([...command, '--json'], user.env, '', hurried(1000))).code).not.toBe(1);
    await mirror.close();
  });

  it('is not polluted by flags', async () => {
    const gateway = await FaultGateway.start({ protocol: 'c' });
    for (const flags of [
      ['--set', '__proto__.polluted=yes'],
      ['--set', 'prompt.__proto__.polluted=yes'],
      ['--body', poison],
    ]) {
      const { code } = await runHere([...submit, ...flags], newUser(gateway.url).env);
      expect([0, 2]).toContain(code);
    }
    for (const { body } of gateway.submissions)
      expect(Object.keys(JSON.parse(body) as object)).not.toContain('polluted');
    await gateway.close();
  });

  it('is not polluted by a config file, which is refused', async () => {
    const user = newUser('http://127.0.0.1:9');
    const folder = join(user.cwd, 'config');
    mkdirSync(folder, { mode: 0o700 });
    writeFileSync(join(folder, 'config.json'), `{"profiles":{"default":${poison}}}`, { mode: 0o600 });
    expect((await runHere(['models'], user.env)).code).toBe(2);
  });

  it('is not polluted by an imported job list', async () => {
    const user = newUser('http://127.0.0.1:9');
    const line = `{"id":"job_00000000000000","protocol":"c","handle":"h","base_url":"",${poison.slice(1)}`;
    writeFileSync(join(user.cwd, 'jobs.jsonl'), line);
    const args = ['jobs', 'import', join(user.cwd, 'jobs.jsonl')];
    expect([0, 2]).toContain((await runHere(args, user.env)).code);
  });
});
