import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { userHere } from '../../support/one-process.ts';

it.each([
  ['bash', 'complete -F _mgw mgw'],
  ['zsh', '#compdef mgw'],
  ['fish', 'complete -c mgw'],
  ['powershell', 'Register-ArgumentCompleter -Native -CommandName mgw'],
])('mgw completion prints a script for %s', async (shell, line) => {
  const { code, stdout, stderr } = await userHere().run(['completion', shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain(line);
  expect(stdout).toContain('mgw __complete');
});

it('mgw completion refuses an unsupported shell, and lists the supported ones', async () => {
  const { code, stdout, stderr } = await userHere().run(['completion', 'tcsh']);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain('bash, zsh, fish, powershell');
});

it('mgw completion offers models from the last model list, without a request to the gateway', async () => {
  const gateway = await startGateway();
  const user = userHere(gateway.url);
  const typed = ['__complete', '--', 'video', 'c', 'submit', '-m', 'vendor'];
  expect((await user.run(typed)).stdout).toBe('words\n');
  await user.run(['models']);
  const requestCount = gateway.requests;
  expect((await user.run(typed)).stdout).toBe('words\nvendor-h3-mini\tprotocol c\n');
  expect(gateway.requests).toBe(requestCount);
  await gateway.close();
});

it.each([
  ['vid', 'video'],
  ['video c subm', 'submit'],
  ['video c submit --dur', '--duration'],
  ['--profile de', 'default'],
  ['sandbox exec --fault submit-reply', 'submit-reply-lost'],
  ['config set tts.sp', 'tts.speaker'],
  ['help scr', 'scripting'],
  ['jobs ls --state succ', 'succeeded'],
  ['completion po', 'powershell'],
])('mgw completion completes "%s" to %s', async (line, offered) => {
  const { stdout } = await userHere().run(['__complete', '--', ...line.split(' ')]);
  expect(stdout.split(/[\t\n]/).slice(0, 3)).toEqual(['words', offered, expect.any(String)]);
  expect(stdout.trimEnd().split('\n')).toHaveLength(2);
});

async function startGateway(): Promise<{
  url: string;
  readonly requests: number;
  close: () => Promise<void>;
}> {
  let requests = 0;
  const server = createServer((_, response) => {
    requests += 1;
    response.setHeader('content-type', 'application/json');
    response.end('{"data":[{"id":"vendor-h3-mini","protocol":"c"},{"id":"veo-3","protocol":"a"}]}');
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    get requests() {
      return requests;
    },
    close: () => new Promise((resolve) => void server.close(() => resolve())),
  };
}
