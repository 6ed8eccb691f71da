import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { newUser, type User } from '../support/cli.ts';
import { newAuthority } from '../support/certificates.ts';
import { FaultGateway, reply, type GatewayOptions } from '../faults/gateway.ts';

let gateway: FaultGateway;
let user: User;

afterEach(() => gateway.close());

/** Starts a gateway whose first status query removes mgw: from then on, no file of the build can be read. */
async function start(options: Partial<GatewayOptions> = {}): Promise<void> {
  gateway = await FaultGateway.start({ protocol: 'c', ...options });
  user = newUser(gateway.url);
  const [removed, script] = [join(user.cwd, 'removed'), join(user.cwd, 'removing.cjs')];
  writeFileSync(
    script,
    `const fs = require('node:fs'); const { existsSync, readFileSync } = fs;
     fs.readFileSync = (path, ...rest) => {
       if (/[/]dist[/]/.test(String(path)) && existsSync(${JSON.stringify(removed)})) throw new Error('removed: ' + path);
       return readFileSync(path, ...rest);
     };`,
  );
  user.env['NODE_OPTIONS'] = `--require ${script}`;
  gateway.script.query.push(({ response }) => {
    writeFileSync(removed, '');
    reply(response, { body: gateway.shown(gateway.created[0] ?? '') });
  });
}

const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-o', 'out.mp4'];
const fast = ['--poll-interval', '50ms'];

it('a command whose mgw is removed while it waits runs its --on-done command and reports to the workflow', async () => {
  await start();
  const env = { GITHUB_ACTIONS: 'true', GITHUB_OUTPUT: join(user.cwd, 'output') };
  const run = await user.start([...submit, ...fast, '--on-done', 'cat > done.json'], { env }).result;
  expect([run.code, run.stdout], run.stderr).toEqual([0, `${join(user.cwd, 'out.mp4')}\n`]);
  expect(readFileSync(join(user.cwd, 'output'), 'utf8')).toContain(join(user.cwd, 'out.mp4'));
  expect(JSON.parse(readFileSync(join(user.cwd, 'done.json'), 'utf8'))).toMatchObject({ ok: true });
});

it('a command whose mgw is removed while it waits annotates its error in a workflow', async () => {
  await start();
  gateway.always.query = { body: gateway.dialect.failed('task_0001') };
  const run = await user.start([...submit, ...fast], { env: { GITHUB_ACTIONS: 'true' } }).result;
  expect([run.code, run.stderr]).toEqual([5, expect.stringMatching(/^::error title=/m)]);
});

it('a command whose mgw is removed while it waits requests a result from another site', async () => {
  const authority = newAuthority();
  await start({ tls: authority.issue({ hosts: ['127.0.0.1', 'localhost'] }) });
  const ca = join(user.cwd, 'ca.pem');
  writeFileSync(ca, authority.cert);
  // Nothing resolves names below .invalid (RFC 6761), so the request fails.
  const result_url = 'https://files.mgw-test.invalid/out.mp4';
  gateway.succeeded = (task_id) => ({ task_id, status: 'completed', result_url });
  gateway.always.content = { status: 404 };
  const env = { MGW_BASE_URL: gateway.url.replace('127.0.0.1', 'localhost'), NODE_EXTRA_CA_CERTS: ca };
  const run = await user.start([...submit, ...fast, '--retries', '0'], { env }).result;
  expect(run.stderr).toContain('files.mgw-test.invalid');
});
