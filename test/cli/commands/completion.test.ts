import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { newUser } from '../../support/cli.ts';

it.each([
  ['bash', 'complete -F _mgw mgw'],
  ['zsh', '#compdef mgw'],
  ['fish', 'complete -c mgw'],
  ['powershell', 'Register-ArgumentCompleter -Native -CommandName mgw'],
])('prints a script for %s', async (shell, line) => {
  const { code, stdout, stderr } = await newUser().run(['completion', shell]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toContain(line);
  expect(stdout).toContain('mgw __complete');
});

it('refuses another shell and names those it knows', async () => {
  const { code, stdout, stderr } = await newUser().run(['completion', 'tcsh']);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
  expect(stderr).toContain('bash, zsh, fish, powershell');
});

it('completes models from the last listing of the gateway, and asks it for nothing', async () => {
  const gateway = await startGateway();
  const user = newUser(gateway.url);
  const typed = ['__complete', '--', 'video', 'c', 'submit', '-m', 'vendor'];
  expect((await user.run(typed)).stdout).toBe('words\n');
  await user.run(['models']);
  const asked = gateway.requests;
  expect((await user.run(typed)).stdout).toBe('words\nvendor-h3-mini\tprotocol c\n');
  expect(gateway.requests).toBe(asked);
  await gateway.close();
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
